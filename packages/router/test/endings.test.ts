import { TransportError } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { type RequestMessage, RouterClosedError, type RouterOptions, requestChannel } from '../src/index.js'
import { booked, chat, expectIdle, settled, startFleet, textOf, workerRecord } from './support/fleet.js'
import { Feed, json, silence, sse, sseOf } from './support/scripted-transport.js'

const reset = () => new TransportError('INFERA_FLEET_BROKEN', 'a', 'the connection was reset')
const modes = [{ stream: false }, { stream: true }]

/** A fleet, and the reports of requests that ended in it. */
async function watchedFleet(options?: Partial<RouterOptions>, records?: Parameters<typeof startFleet>[1]) {
  const fleet = await startFleet(options, records)
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
  return { ...fleet, outcomes, [Symbol.asyncDispose]: dispose }
}

describe('every ending of a request gives back what was booked for it, once:', () => {
  test('an answer in one piece', async () => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => json({ ok: true }))
    const result = await fleet.router.dispatch(chat())
    expect(booked(fleet.router)).toEqual({ requests: 1, blocks: 6 })
    expect(await textOf(result.body)).toBe('{"ok":true}')
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['ok'])
    expect(fleet.transport.calls[0]?.ending).toBe('answered')
  })

  test('a stream', async () => {
    await using fleet = await watchedFleet()
    const feed = new Feed().push('data: 1\n\n')
    fleet.transport.script('*', () => sseOf(feed))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    await body.next()
    expect(booked(fleet.router)).toEqual({ requests: 1, blocks: 6 })
    feed.push('data: [DONE]\n\n').end()
    expect(await textOf(body)).toBe('data: [DONE]\n\n')
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['ok'])
  })

  test.each(modes)('the caller leaves before there is a status, %j', async (mode) => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', silence)
    const caller = new AbortController()
    const dispatched = fleet.router.dispatch(chat(mode), { signal: caller.signal })
    const call = await fleet.transport.call(0)
    expect(booked(fleet.router)).toEqual({ requests: 1, blocks: 6 })
    caller.abort(new Error('no longer wanted'))
    expectIdle(fleet.router)
    await expect(dispatched).rejects.toThrow('no longer wanted')
    expect(await call.ended).toBe('cancelled')
    expect(fleet.transport.calls).toHaveLength(1)
    expect(fleet.outcomes).toEqual(['client-gone'])
  })

  test.each(modes)('the caller leaves between status and first byte, %j', async (mode) => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => sseOf(new Feed()))
    const caller = new AbortController()
    const dispatched = fleet.router.dispatch(chat(mode), { signal: caller.signal })
    const call = await fleet.transport.call(0)
    await settled()
    expect(call.pullCount).toBe(1)
    caller.abort(new Error('no longer wanted'))
    await expect(dispatched).rejects.toThrow('no longer wanted')
    expect(await call.ended).toBe('cancelled')
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['client-gone'])
  })

  test('the caller leaves in the middle of a stream, while it waits for more', async () => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n')))
    const caller = new AbortController()
    const { body } = await fleet.router.dispatch(chat({ stream: true }), { signal: caller.signal })
    await body.next()
    const more = body.next()
    caller.abort(new Error('no longer wanted'))
    await expect(more).rejects.toThrow('no longer wanted')
    expect(await fleet.transport.calls[0]?.ended).toBe('cancelled')
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['client-gone'])
  })

  test('the signal was aborted before: nothing is sent', async () => {
    await using fleet = await watchedFleet()
    await expect(
      fleet.router.dispatch(chat(), { signal: AbortSignal.abort(new Error('late')) }),
    ).rejects.toThrow('late')
    expect(fleet.transport.calls).toEqual([])
    expectIdle(fleet.router)
  })

  test('the worker breaks before its first byte, and so does every other', async () => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => sseOf(new Feed().break(reset())))
    await expect(fleet.router.dispatch(chat())).rejects.toMatchObject({
      code: 'INFERA_ROUTER_WORKERS_FAILED',
      status: 502,
      attempts: 3,
      isMidStream: false,
      workerId: 'c',
      cause: { code: 'INFERA_FLEET_BROKEN' },
    })
    expect(fleet.transport.workerIds).toEqual(['a', 'b', 'c'])
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['5xx'])
  })

  test('the worker breaks after its first byte', async () => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n').break(reset())))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    await body.next()
    await expect(body.next()).rejects.toMatchObject({
      code: 'INFERA_ROUTER_WORKERS_FAILED',
      isMidStream: true,
      workerId: 'a',
    })
    expectIdle(fleet.router)
    expect(fleet.transport.workerIds).toEqual(['a'])
    expect(fleet.outcomes).toEqual(['broken'])
    expect(await body.next()).toEqual({ value: undefined, done: true })
  })

  test('the worker refuses the request', async () => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => json({ error: 'no' }, 400))
    const { status, body } = await fleet.router.dispatch(chat())
    expect([status, await textOf(body)]).toEqual([400, '{"error":"no"}'])
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['4xx'])
  })

  test('a time limit of the transport passes', async () => {
    await using fleet = await watchedFleet({ requestRetriesMax: 0 })
    fleet.transport.script('*', () => {
      throw new TransportError('INFERA_FLEET_TIMEOUT', 'a', 'silent for too long')
    })
    await expect(fleet.router.dispatch(chat())).rejects.toMatchObject({ status: 504, attempts: 1 })
    expectIdle(fleet.router)
  })

  test('a time limit passes in the middle of the answer', async () => {
    await using fleet = await watchedFleet()
    const timeout = new TransportError('INFERA_FLEET_TIMEOUT', 'a', 'silent for too long')
    fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n').break(timeout)))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    await expect(textOf(body)).rejects.toMatchObject({ status: 504, isMidStream: true })
    expectIdle(fleet.router)
  })

  test('another worker answers in place of one that failed, which is cancelled and not charged any more', async () => {
    await using fleet = await watchedFleet()
    fleet.transport
      .script('a', () => json({ error: 'busy' }, 503))
      .script('b', () => sseOf(new Feed().push('data: 1\n\n')))
    const caller = new AbortController()
    const { workerId } = await fleet.router.dispatch(chat(), { signal: caller.signal })
    expect(workerId).toBe('b')
    expect(await fleet.transport.calls[0]?.ended).toBe('cancelled')
    expect(fleet.router.stats().targets.map(({ requestsInFlight }) => requestsInFlight)).toEqual([0, 1, 0])
    caller.abort()
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['client-gone'])
  })

  test('the body is never read, but the signal aborts', async () => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => sse('data: 1\n\n', 'data: [DONE]\n\n'))
    const caller = new AbortController()
    await fleet.router.dispatch(chat({ stream: true }), { signal: caller.signal })
    expect(booked(fleet.router).requests).toBe(1)
    caller.abort()
    expect(await fleet.transport.calls[0]?.ended).toBe('cancelled')
    expectIdle(fleet.router)
  })

  test('the body is given back unread', async () => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => sse('data: 1\n\n', 'data: [DONE]\n\n'))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    expect(await body.return?.()).toEqual({ value: undefined, done: true })
    expect(await fleet.transport.calls[0]?.ended).toBe('cancelled')
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['client-gone'])
  })

  test('the reading loop is left early', async () => {
    await using fleet = await watchedFleet()
    fleet.transport.script('*', () => sse('data: 1\n\n', 'data: 2\n\n', 'data: [DONE]\n\n'))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    for await (const _ of body) break
    expect(await fleet.transport.calls[0]?.ended).toBe('cancelled')
    expectIdle(fleet.router)
  })

  test('the worker breaks and the caller leaves in the same turn', async () => {
    await using fleet = await watchedFleet()
    const feed = new Feed().push('data: 1\n\n')
    fleet.transport.script('*', () => sseOf(feed))
    const caller = new AbortController()
    const { body } = await fleet.router.dispatch(chat({ stream: true }), { signal: caller.signal })
    await body.next()
    const more = body.next()
    feed.break(reset())
    caller.abort(new Error('no longer wanted'))
    await expect(more).rejects.toThrow('no longer wanted')
    await body.return?.()
    await fleet.router.destroy()
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['client-gone'])
  })

  // A status is there and the next worker is about to be chosen: each moment of that hand-over is one turn of the queue.
  test.each([0, 1, 2, 3, 4, 5, 6, 7, 8])(
    'the caller leaves %i turns after a worker refused',
    async (turns) => {
      await using fleet = await watchedFleet()
      let refuse: () => void = () => {}
      const refusing = new Promise<void>((resolve) => {
        refuse = resolve
      })
      fleet.transport
        .script('a', () => refusing.then(() => json({ error: 'busy' }, 503)))
        .script('*', silence)
      const caller = new AbortController()
      const dispatched = fleet.router.dispatch(chat(), { signal: caller.signal })
      await fleet.transport.call(0)
      refuse()
      for (let turn = 0; turn < turns; turn++) await Promise.resolve()
      caller.abort(new Error('no longer wanted'))
      await expect(dispatched).rejects.toThrow('no longer wanted')
      await settled()
      expectIdle(fleet.router)
      expect(fleet.transport.calls.map(({ ending }) => ending)).not.toContain(undefined)
      expect(fleet.outcomes).toEqual(['client-gone'])
    },
  )

  test.each(['before its status', 'in the middle of its answer'])(
    'the router is destroyed %s',
    async (when) => {
      await using fleet = await watchedFleet()
      fleet.transport.script(
        '*',
        when === 'before its status' ? silence : () => sseOf(new Feed().push('data: 1\n\n')),
      )
      const ended = fleet.router.dispatch(chat({ stream: true })).then(({ body }) => textOf(body))
      ended.catch(() => {
        // Looked at below.
      })
      const call = await fleet.transport.call(0)
      await settled()
      await fleet.router.destroy()
      await expect(ended).rejects.toBeInstanceOf(RouterClosedError)
      expect(await call.ended).toBe('cancelled')
      expect(fleet.router.stats().requestsInFlight).toBe(0)
      expect(fleet.router.state).toBe('closed')
    },
  )

  test('its worker leaves the fleet and comes back meanwhile: the new one starts at nothing and stays there', async () => {
    await using fleet = await watchedFleet({}, [workerRecord('a', { ext: { instance_id: '1' } })])
    const feed = new Feed().push('data: 1\n\n')
    fleet.transport.script('*', () => sseOf(feed))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    await fleet.registrations.get('a')?.deregister()
    await settled()
    expect(fleet.router.stats()).toMatchObject({ requestsInFlight: 1, targets: [] })
    await fleet.discovery.register({
      kind: 'worker',
      record: workerRecord('a', { ext: { instance_id: '2' } }),
    })
    await settled()
    expect(booked(fleet.router)).toEqual({ requests: 0, blocks: 0 })
    feed.push('data: [DONE]\n\n').end()
    expect(await textOf(body)).toBe('data: 1\n\ndata: [DONE]\n\n')
    expectIdle(fleet.router)
    expect(fleet.outcomes).toEqual(['ok'])
  })
})

test('close takes no new requests and waits for those that run', async () => {
  await using fleet = await startFleet()
  const feed = new Feed().push('data: 1\n\n')
  fleet.transport.script('*', () => sseOf(feed))
  const { body } = await fleet.router.dispatch(chat({ stream: true }))
  const closed = fleet.router.close()
  expect(fleet.router.state).toBe('draining')
  await expect(fleet.router.dispatch(chat())).rejects.toMatchObject({ code: 'INFERA_ROUTER_CLOSED' })
  feed.push('data: 2\n\n').end()
  expect(await textOf(body)).toBe('data: 1\n\ndata: 2\n\n')
  await closed
  expect(fleet.router.state).toBe('closed')
})

test('close cancels what still runs when its time has passed', async () => {
  await using fleet = await startFleet({ closeTimeoutMs: 0 })
  fleet.transport.script('*', silence)
  const dispatched = fleet.router.dispatch(chat())
  const call = await fleet.transport.call(0)
  const closed = fleet.router.close()
  await expect(dispatched).rejects.toBeInstanceOf(RouterClosedError)
  await closed
  expect(call.ending).toBe('cancelled')
  expectIdle(fleet.router)
})

test('requests beyond requestsInFlightMax are refused until one has ended', async () => {
  await using fleet = await startFleet({ requestsInFlightMax: 1 })
  fleet.transport.script('*', () => json({}))
  const { body } = await fleet.router.dispatch(chat())
  await expect(fleet.router.dispatch(chat())).rejects.toMatchObject({ code: 'INFERA_ROUTER_OVERLOADED' })
  await textOf(body)
  await textOf((await fleet.router.dispatch(chat())).body)
  expectIdle(fleet.router)
})
