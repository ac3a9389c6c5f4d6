import { VirtualClock } from '@infera/fleet'
import { expect, test } from 'vitest'
import { EngineClock } from './engine-clock.js'

test('a slow clock is late by its factor, also for what was armed before', () => {
  const outer = new VirtualClock()
  const clock = new EngineClock(outer)
  const fired: number[] = []
  clock.setTimer(100, () => fired.push(outer.now()))
  outer.advance(50)
  clock.setRate(0.1)
  outer.advance(499)
  expect(fired).toEqual([])
  outer.advance(1)
  expect(fired).toEqual([550])
  expect(clock.now()).toBeCloseTo(100)
})

test('a clock that stands still fires nothing, holds no timer of the other one, and goes on where it stood', () => {
  const outer = new VirtualClock()
  const clock = new EngineClock(outer)
  const fired: number[] = []
  clock.setTimer(10, () => fired.push(clock.now()))
  clock.setRate(0)
  expect(outer.pendingTimers).toBe(0)
  outer.advance(1_000)
  expect(clock.now()).toBe(0)
  clock.setRate(1)
  outer.advance(10)
  expect(fired).toEqual([10])
})

test('a cancelled timer never fires, be it while the clock stands', () => {
  const outer = new VirtualClock()
  const clock = new EngineClock(outer)
  let count = 0
  const timer = clock.setTimer(10, () => count++)
  clock.setRate(0)
  timer.cancel()
  clock.setRate(1)
  outer.advance(100)
  expect(count).toBe(0)
  expect(outer.pendingTimers).toBe(0)
})
