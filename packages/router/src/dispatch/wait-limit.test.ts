import { type Clock, VirtualClock } from '@infera/fleet'
import { expect, test } from 'vitest'
import { WaitLimit } from './wait-limit.js'

function rig(timeoutMs: number | null = 100) {
  const clock = new VirtualClock()
  let armedCount = 0
  const counted: Clock = {
    now: () => clock.now(),
    setTimer: (delayMs, callback) => {
      armedCount += 1
      return clock.setTimer(delayMs, callback)
    },
  }
  const limit = new WaitLimit({ clock: counted, timeoutMs, onExpired: () => new Error('too long') })
  return { clock, limit, armed: () => armedCount }
}

/** Work that a test ends. */
function work() {
  let finish: (value: string) => void = () => {}
  const promise = new Promise<string>((resolve) => {
    finish = resolve
  })
  return { promise, finish }
}

test('waits that end in time share one timer, which is moved on only when it fires', async () => {
  const { clock, limit, armed } = rig()
  for (let wait = 0; wait < 100; wait++) {
    const { promise, finish } = work()
    const waited = limit.wait(promise)
    clock.advance(1)
    finish('done')
    expect(await waited).toBe('done')
  }
  expect(armed()).toBeLessThanOrEqual(2)
  limit.stop()
  expect(clock.pendingTimers).toBe(0)
})

test('a wait has its whole time, however long ago the timer was armed', async () => {
  const { clock, limit } = rig()
  await limit.wait(Promise.resolve())
  clock.advance(60)
  const waited = limit.wait(new Promise(() => {}))
  let isOver = false
  waited.catch(() => {
    isOver = true
  })
  await clock.advanceAsync(99)
  expect(isOver).toBe(false)
  await clock.advanceAsync(1)
  await expect(waited).rejects.toThrow('too long')
})

test('work that ends in the turn in which its time is up has made it', async () => {
  const { clock, limit } = rig()
  const { promise, finish } = work()
  const waited = limit.wait(promise)
  clock.setTimer(100, () => finish('just in time')) // after the limit's own timer of that moment
  await clock.advanceAsync(100)
  expect(await waited).toBe('just in time')
})

test('a wait that begins in the turn in which the one before it was due is not ended in its place', async () => {
  const { clock, limit } = rig()
  const { promise, finish } = work()
  const first = limit.wait(promise)
  let isOver = false
  let second: Promise<unknown> | undefined
  clock.setTimer(100, () => {
    finish('just in time')
    void first.then(() => {
      second = limit.wait(new Promise(() => {}))
      second.catch(() => {
        isOver = true
      })
    })
  })
  await clock.advanceAsync(199)
  expect([await first, isOver]).toEqual(['just in time', false])
  await clock.advanceAsync(1)
  await expect(second).rejects.toThrow('too long')
})

test('what becomes of work that took too long is nobody’s business, be it a failure', async () => {
  const { clock, limit } = rig()
  let fail: (error: Error) => void = () => {}
  const waited = limit.wait(
    new Promise<never>((_, reject) => {
      fail = reject
    }),
  )
  const seen = expect(waited).rejects.toThrow('too long')
  await clock.advanceAsync(100)
  await seen
  fail(new Error('much later')) // an unhandled rejection would fail the run
  await clock.advanceAsync(1)
})

test('a failure of the work is passed on as it is', async () => {
  const { limit } = rig()
  await expect(limit.wait(Promise.reject(new Error('broken')))).rejects.toThrow('broken')
  limit.stop()
})

test('null is no limit and no timer', async () => {
  const { clock, limit } = rig(null)
  const { promise } = work()
  expect(limit.wait(promise)).toBe(promise)
  expect(clock.pendingTimers).toBe(0)
})
