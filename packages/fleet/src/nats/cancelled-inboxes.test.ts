import { expect, test } from 'vitest'
import { VirtualClock } from '../virtual-clock.js'
import { CancelledInboxes } from './cancelled-inboxes.js'

test('a cancelled inbox is known for its time and then forgotten', () => {
  const clock = new VirtualClock()
  const cancelled = new CancelledInboxes({ clock, lifeMs: 1_000 })
  cancelled.add('a')
  clock.advance(999)
  expect(cancelled.has('a')).toBe(true)
  clock.advance(1)
  expect(cancelled.has('a')).toBe(false)
  cancelled.add('b')
  expect(cancelled.size).toBe(1)
})

test('of too many the oldest are forgotten', () => {
  const cancelled = new CancelledInboxes({ clock: new VirtualClock(), lifeMs: 1_000 })
  for (let index = 0; index < 20_000; index++) cancelled.add(String(index))
  expect(cancelled.size).toBeLessThanOrEqual(16_384)
  expect(cancelled.has('0')).toBe(false)
  expect(cancelled.has('19999')).toBe(true)
})
