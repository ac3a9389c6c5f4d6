import { expect, test } from 'vitest'
import { ManualClock } from './manual-clock.js'
import { sleep } from './ports/clock.js'
import { seededRandom } from './ports/random.js'

test('timers fire in order of time, then of arming, each at its own time', () => {
  const clock = new ManualClock()
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
  const clock = new ManualClock()
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
