import { describe, expect, test } from 'vitest'
import { outcomeOf, type RequestOutcome, RunningRequest } from './running-request.js'

function start(signal?: AbortSignal) {
  const outcomes: RequestOutcome[] = []
  const running = new RunningRequest(signal, (outcome) => outcomes.push(outcome))
  let cleanups = 0
  const begin = () =>
    running.beginAttempt(() => {
      cleanups += 1
    })
  return { running, outcomes, begin, cleanups: () => cleanups }
}

describe('RunningRequest', () => {
  test('of several endings the first counts', () => {
    const { running, outcomes, begin, cleanups } = start()
    begin()
    running.finish('ok')
    running.finish('broken')
    running.abort(new Error('late'))
    expect(outcomes).toEqual(['ok'])
    expect(cleanups()).toBe(1)
    expect(() => running.throwIfAborted()).not.toThrow()
  })

  test('an abort cancels the attempt with its reason, and everybody who asks is told', () => {
    const caller = new AbortController()
    const { running, outcomes, begin, cleanups } = start(caller.signal)
    const signal = begin()
    const reason = new Error('no longer wanted')
    caller.abort(reason)
    expect(signal.reason).toBe(reason)
    expect(() => running.throwIfAborted()).toThrow(reason)
    expect([running.isFinished, outcomes, cleanups()]).toEqual([true, ['client-gone'], 1])
  })

  test('an attempt that ended is cancelled and cleaned up alone; the next one has a signal of its own', () => {
    const { running, outcomes, begin, cleanups } = start()
    const first = begin()
    running.endAttempt()
    const second = begin()
    expect([first.aborted, second.aborted, cleanups(), outcomes]).toEqual([true, false, 1, []])
    running.finish('ok')
    expect([second.aborted, cleanups()]).toEqual([false, 2])
  })

  test('after the end the caller’s signal means nothing', () => {
    const caller = new AbortController()
    const { running, outcomes } = start(caller.signal)
    running.finish('ok')
    caller.abort()
    expect([running.isFinished, outcomes]).toEqual([true, ['ok']])
    expect(() => running.throwIfAborted()).not.toThrow()
  })

  test('a reason of undefined is a reason', () => {
    const { running } = start()
    running.abort(undefined)
    let thrown: unknown = 'nothing'
    try {
      running.throwIfAborted()
    } catch (error) {
      thrown = error
    }
    expect(thrown).toBeUndefined()
  })
})

test.each([
  [200, 'ok'],
  [302, 'ok'],
  [400, '4xx'],
  [499, '4xx'],
  [500, '5xx'],
] as const)('status %i is the outcome %s', (status, outcome) => {
  expect(outcomeOf(status)).toBe(outcome)
})
