import fc from 'fast-check'
import { expect, test } from 'vitest'
import { sleep } from './ports/clock.js'
import { seededRandom } from './ports/random.js'
import { VirtualClock } from './virtual-clock.js'

test('timers fire in order of time, then of arming, each at its own time', () => {
  const clock = new VirtualClock()
  const fired: string[] = []
  const arm = (name: string, delayMs: number) =>
    clock.setTimer(delayMs, () => fired.push(`${name}@${clock.now()}`))
  arm('c', 30)
  arm('a', 10)
  arm('b', 10)
  const cancelled = arm('x', 20)
  cancelled.cancel()
  clock.advance(25)
  expect(fired).toEqual(['a@10', 'b@10'])
  expect(clock.now()).toBe(25)
  clock.advance(5)
  expect(fired).toEqual(['a@10', 'b@10', 'c@30'])
  expect(clock.pendingTimers).toBe(0)
})

test('a sleep ends at its time, or with the signal’s reason and no timer left', async () => {
  const clock = new VirtualClock()
  const slept = sleep(clock, 10)
  clock.advance(10)
  await slept
  const controller = new AbortController()
  const cut = sleep(clock, 10, controller.signal)
  const reason = new Error('enough')
  controller.abort(reason)
  await expect(cut).rejects.toBe(reason)
  expect(clock.pendingTimers).toBe(0)
  await expect(sleep(clock, 10, controller.signal)).rejects.toBe(reason)
})

test('seeded chance repeats from its seed and stays in [0, 1)', () => {
  const [one, same, other] = [seededRandom(7), seededRandom(7), seededRandom(8)]
  const row = Array.from({ length: 1_000 }, one)
  expect(Array.from({ length: 1_000 }, same)).toEqual(row)
  expect(Array.from({ length: 1_000 }, other)).not.toEqual(row)
  expect(row.every((value) => value >= 0 && value < 1)).toBe(true)
  expect(Math.abs(row.reduce((sum, value) => sum + value, 0) / 1_000 - 0.5)).toBeLessThan(0.05)
})

test('whatever is armed and cancelled, timers fire as in a sorted list', () => {
  const step = fc.record({
    delayMs: fc.nat(50),
    cancels: fc.option(fc.nat(300), { nil: undefined }),
    advanceMs: fc.nat(20),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
      const clock = new VirtualClock()
      const fired: number[] = []
      const armed: { atMs: number; timer: { cancel(): void }; isCancelled: boolean }[] = []
      const expected: number[] = []
      const isDone = new Set<number>()
      for (const { delayMs, cancels, advanceMs } of steps) {
        const index = armed.length
        const atMs = clock.now() + delayMs
        armed.push({ atMs, timer: clock.setTimer(delayMs, () => fired.push(index)), isCancelled: false })
        const victim = cancels === undefined ? undefined : armed[cancels]
        if (victim) {
          victim.timer.cancel()
          victim.isCancelled = true
        }
        clock.advance(advanceMs)
        const due = armed
          .map((timer, at) => ({ ...timer, at }))
          .filter((timer) => !timer.isCancelled && !isDone.has(timer.at) && timer.atMs <= clock.now())
          .sort((a, b) => a.atMs - b.atMs || a.at - b.at)
        for (const { at } of due) {
          isDone.add(at)
          expected.push(at)
        }
        expect(fired).toEqual(expected)
        const pending = armed.filter((timer, at) => !timer.isCancelled && !isDone.has(at))
        expect(clock.pendingTimers).toBe(pending.length)
      }
    }),
  )
})

test('runs until something is so, or until no timer could bring it about', async () => {
  const clock = new VirtualClock()
  let ticks = 0
  const tick = async () => {
    for (let count = 0; count < 5; count++) {
      await sleep(clock, 10)
      ticks += 1
    }
  }
  const ticking = tick()
  expect(await clock.runUntil(() => ticks === 3, { withinMs: 1_000 })).toBe(true)
  expect(clock.now()).toBe(30)
  expect(await clock.runUntil(() => ticks === 5, { withinMs: 5 })).toBe(false)
  expect(await clock.runUntil(() => ticks === 6, { withinMs: 1_000 })).toBe(false)
  expect(ticks).toBe(5)
  await ticking
})
