import { expect, test } from 'vitest'
import { VirtualClock } from '../virtual-clock.js'
import { RequestLimits } from './request-limits.js'

function start(options: { idleTimeoutMs?: number; totalTimeoutMs?: number; signal?: AbortSignal }) {
  const clock = new VirtualClock()
  const { idleTimeoutMs, totalTimeoutMs, signal } = options
  return { clock, limits: new RequestLimits(clock, 'w:1', { idleTimeoutMs, totalTimeoutMs, signal }) }
}

test('silence is counted from the last touch, and not while paused', () => {
  const { clock, limits } = start({ idleTimeoutMs: 100 })
  clock.advance(99)
  limits.touch()
  clock.advance(99)
  limits.pause()
  clock.advance(1_000)
  expect(limits.signal.aborted).toBe(false)
  limits.touch()
  clock.advance(100)
  expect(limits.signal.reason).toMatchObject({ code: 'INFERA_FLEET_TIMEOUT', workerId: 'w:1' })
})

test('the total is counted from the start, whatever is touched', () => {
  const { clock, limits } = start({ idleTimeoutMs: 100, totalTimeoutMs: 250 })
  for (let count = 0; count < 4; count++) {
    clock.advance(60)
    limits.touch()
  }
  expect(limits.signal.aborted).toBe(false)
  clock.advance(10)
  expect(String(limits.signal.reason)).toContain('took more than 250 ms')
  expect(clock.pendingTimers).toBe(0)
})

test('the caller’s abort is passed on with its reason, and nothing is left behind at the end', () => {
  const controller = new AbortController()
  const { clock, limits } = start({ idleTimeoutMs: 100, totalTimeoutMs: 100, signal: controller.signal })
  const reason = new Error('client left')
  controller.abort(reason)
  expect(limits.signal.reason).toBe(reason)
  expect(clock.pendingTimers).toBe(0)

  const later = new AbortController()
  const ended = start({ idleTimeoutMs: 100, signal: later.signal })
  ended.limits.end()
  later.abort()
  ended.clock.advance(1_000)
  expect(ended.limits.signal.aborted).toBe(false)
  expect(ended.clock.pendingTimers).toBe(0)
})
