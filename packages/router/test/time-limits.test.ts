import { VirtualClock } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { type RequestMessage, type RouterOptions, requestChannel } from '../src/index.js'
import { booked, chat, expectIdle, settled, startFleet, textOf } from './support/fleet.js'
import { Feed, json, silence, sseOf } from './support/scripted-transport.js'

/** A fleet under a clock that stands still, and how its requests ended. */
async function timedFleet(options: Partial<RouterOptions> = {}) {
  const clock = new VirtualClock()
  const fleet = await startFleet({ clock, firstByteTimeoutMs: 1_000, idleTimeoutMs: 100, ...options })
  const outcomes: string[] = []
  const listener = (message: unknown) => {
    const { router, outcome } = message as RequestMessage
    if (router === fleet.router) outcomes.push(outcome)
  }
  requestChannel.subscribe(listener)
  const dispose = async () => {
    await fleet[Symbol.asyncDispose]()
    requestChannel.unsubscribe(listener)
  }
  return { ...fleet, clock, outcomes, [Symbol.asyncDispose]: dispose }
}

/** What a promise settled with, once it has; the test goes on meanwhile. */
function watch<T>(promise: Promise<T>) {
  const seen: { value?: T; error?: unknown } = {}
  promise.then(
    (value) => {
      seen.value = value
    },
    (error: unknown) => {
      seen.error = error
    },
  )
  return seen
}

const delta = (text: string) => `data: ${text}\n\n`

describe('firstByteTimeoutMs', () => {
  test.each([
    ['says nothing', silence],
    ['gives a status and no byte', () => sseOf(new Feed())],
    ['gives a status and empty chunks', () => sseOf(new Feed().push('', ''))],
  ])('a worker that %s is cancelled and released, and the next one answers', async (_, script) => {
    await using fleet = await timedFleet()
    fleet.transport.script('a', script).script('*', () => json({ ok: true }))
    const dispatched = fleet.router.dispatch(chat())
    const call = await fleet.transport.call(0)
    await fleet.clock.advanceAsync(999)
    expect([call.ending, fleet.transport.workerIds]).toEqual([undefined, ['a']])
    await fleet.clock.advanceAsync(1)
    const { workerId, body, placements } = await dispatched
    expect([workerId, placements.length, call.ending]).toEqual(['b', 2, 'cancelled'])
    expect(fleet.router.stats().targets.map(({ requestsInFlight }) => requestsInFlight)).toEqual([0, 1, 0])
    expect(await textOf(body)).toBe('{"ok":true}')
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['ok'])
    expect(fleet.clock.pendingTimers).toBe(0)
  })

  test('each worker has it anew, no more are tried than requestRetriesMax allows, and the end is a 504', async () => {
    await using fleet = await timedFleet({ requestRetriesMax: 1 })
    fleet.transport.script('*', silence)
    const seen = watch(fleet.router.dispatch(chat()))
    await fleet.clock.advanceAsync(1_999)
    expect(seen).toEqual({})
    expect(booked(fleet.router).requests).toBe(1)
    await fleet.clock.advanceAsync(1)
    await settled()
    expect(seen.error).toMatchObject({
      code: 'INFERA_ROUTER_WORKERS_FAILED',
      status: 504,
      attempts: 2,
      workerId: 'b',
      isMidStream: false,
      cause: { code: 'INFERA_FLEET_TIMEOUT', message: "worker 'b' sent no byte for 1000 ms" },
    })
    expect(fleet.transport.calls.map(({ workerId, ending }) => [workerId, ending])).toEqual([
      ['a', 'cancelled'],
      ['b', 'cancelled'],
    ])
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['5xx'])
    expect(fleet.clock.pendingTimers).toBe(0)
  })

  test('over HTTP the end is a 504 too', async () => {
    await using fleet = await timedFleet({ requestRetriesMax: 0 })
    fleet.transport.script('*', silence)
    const { path, body } = chat()
    const request = new Request(`http://router${path}`, { method: 'POST', body: JSON.stringify(body) })
    const answered = fleet.router.fetch(request)
    await fleet.transport.call(0)
    await fleet.clock.advanceAsync(1_000)
    const response = await answered
    expect(response.status).toBe(504)
    expect(await response.json()).toMatchObject({ error: { code: 'workers_failed' } })
  })

  test('a transport that does not mind being cancelled cannot hold a request up', async () => {
    const clock = new VirtualClock()
    const deaf = { kind: 'link' as const, send: () => new Promise<never>(() => {}), close: async () => {} }
    await using fleet = await startFleet({ clock, transports: [deaf], firstByteTimeoutMs: 10 })
    const seen = watch(fleet.router.dispatch(chat()))
    await clock.advanceAsync(30)
    await settled()
    expect(seen.error).toMatchObject({ status: 504, attempts: 3 })
    expectIdle(fleet.router)
  })

  test('a byte that comes in the last moment counts', async () => {
    await using fleet = await timedFleet()
    const feed = new Feed()
    fleet.transport.script('*', () => sseOf(feed))
    const dispatched = fleet.router.dispatch(chat({ stream: true }))
    await fleet.transport.call(0)
    await fleet.clock.advanceAsync(999)
    feed.push(delta('late')).end()
    await settled()
    await fleet.clock.advanceAsync(5_000)
    const { workerId, body } = await dispatched
    expect([workerId, await textOf(body)]).toEqual(['a', delta('late')])
  })

  test('null waits for ever, without a timer', async () => {
    await using fleet = await timedFleet({ firstByteTimeoutMs: null })
    fleet.transport.script('*', silence)
    const seen = watch(fleet.router.dispatch(chat()))
    await fleet.clock.advanceAsync(1e12)
    expect([seen, fleet.clock.pendingTimers]).toEqual([{}, 0])
  })

  test('a client that leaves meanwhile leaves no timer behind', async () => {
    await using fleet = await timedFleet()
    fleet.transport.script('*', silence)
    const leaving = new AbortController()
    const seen = watch(fleet.router.dispatch(chat(), { signal: leaving.signal }))
    await fleet.transport.call(0)
    expect(fleet.clock.pendingTimers).toBe(1)
    leaving.abort()
    await settled()
    expect(seen.error).toMatchObject({ name: 'AbortError' })
    expect(fleet.clock.pendingTimers).toBe(0)
    expect(fleet.outcomes).toEqual(['client-gone'])
  })
})

describe('idleTimeoutMs', () => {
  test('a worker that falls silent within its answer is cancelled, and the answer breaks', async () => {
    await using fleet = await timedFleet()
    fleet.transport.script('*', () => sseOf(new Feed().push(delta('1'))))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    await body.next()
    const seen = watch(body.next())
    await fleet.clock.advanceAsync(99)
    expect(seen).toEqual({})
    await fleet.clock.advanceAsync(1)
    await settled()
    expect(seen.error).toMatchObject({
      code: 'INFERA_ROUTER_WORKERS_FAILED',
      status: 504,
      isMidStream: true,
      workerId: 'a',
      cause: { message: "worker 'a' was silent within its answer for 100 ms" },
    })
    expect(fleet.transport.calls.map(({ ending }) => ending)).toEqual(['cancelled'])
    expect(await body.next()).toEqual({ value: undefined, done: true })
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['broken'])
    expect(fleet.clock.pendingTimers).toBe(0)
  })

  test('a stream of events ends with an event that says so', async () => {
    await using fleet = await timedFleet()
    fleet.transport.script('*', () => sseOf(new Feed().push(delta('1'))))
    const { path, body } = chat({ stream: true })
    const request = new Request(`http://router${path}`, { method: 'POST', body: JSON.stringify(body) })
    const response = await fleet.router.fetch(request)
    const text = response.text()
    await settled()
    await fleet.clock.advanceAsync(100)
    expect(await text).toContain(`${delta('1')}data: {"error":{"message":"worker 'a' failed mid-stream"`)
    expect(fleet.outcomes).toEqual(['broken'])
  })

  test('chunks that come in time keep an answer going for as long as it likes, on one timer', async () => {
    await using fleet = await timedFleet()
    const feed = new Feed().push(delta('first'))
    fleet.transport.script('*', () => sseOf(feed))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    const text = textOf(body)
    for (let chunk = 0; chunk < 50; chunk++) {
      await fleet.clock.advanceAsync(99)
      feed.push(delta(String(chunk)))
      await settled()
      expect(fleet.clock.pendingTimers).toBeLessThanOrEqual(1)
    }
    feed.end()
    expect((await text).endsWith(delta('49'))).toBe(true)
    expect(fleet.clock.pendingTimers).toBe(0)
    expect(fleet.outcomes).toEqual(['ok'])
  })

  test('the time that a slow reader takes is not the worker’s', async () => {
    await using fleet = await timedFleet()
    const feed = new Feed().push(delta('1'), delta('2'))
    fleet.transport.script('*', () => sseOf(feed))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    for (let chunk = 0; chunk < 2; chunk++) {
      await fleet.clock.advanceAsync(10_000)
      expect((await body.next()).done).toBe(false)
    }
    await fleet.clock.advanceAsync(10_000)
    const seen = watch(body.next())
    await fleet.clock.advanceAsync(99) // the worker is waited for only now
    expect(seen).toEqual({})
    feed.push(delta('3'))
    await settled()
    expect(seen.value?.done).toBe(false)
    feed.end()
    await body.next()
    expect(fleet.outcomes).toEqual(['ok'])
  })

  test('null waits for ever, without a timer', async () => {
    await using fleet = await timedFleet({ idleTimeoutMs: null })
    fleet.transport.script('*', () => sseOf(new Feed().push(delta('1'))))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    await body.next()
    const seen = watch(body.next())
    await fleet.clock.advanceAsync(1e12)
    expect([seen, fleet.clock.pendingTimers]).toEqual([{}, 0])
  })

  test.each(['return', 'abort', 'destroy'] as const)(
    'no timer outlives the answer, ended by %s',
    async (how) => {
      await using fleet = await timedFleet()
      fleet.transport.script('*', () => sseOf(new Feed().push(delta('1'))))
      const leaving = new AbortController()
      const { body } = await fleet.router.dispatch(chat({ stream: true }), { signal: leaving.signal })
      await body.next()
      const seen = watch(body.next())
      await settled()
      expect(fleet.clock.pendingTimers).toBe(1)
      if (how === 'return') void body.return?.()
      else if (how === 'abort') leaving.abort()
      else await fleet.router.destroy()
      expect(fleet.clock.pendingTimers).toBe(0)
      await settled()
      expect(seen.error).toBeDefined()
    },
  )
})
