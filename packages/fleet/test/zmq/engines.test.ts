import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { ZmqKvEvents } from '../../src/zmq/index.js'
import { utf8 } from '../support/bodies.js'
import { until } from '../support/wait.js'
import { recordOf, startEvents } from '../support/zmq-pair.js'
import { freePorts, RawEngine, type RawEngineOptions, sequenceFrame } from '../support/zmq-peers.js'
import { Reading } from '../support/zmq-reading.js'

/** Payloads of routing.md 3.3, in vLLM's older shape and in that of maps. */
const arrayBatch = Buffer.from(
  '93cb3ff80000000000009197ab426c6f636b53746f726564926fccdec098010203040506070804c0c0c0',
  'hex',
)
const mapBatch = Buffer.from(
  '93cb3ff80000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573926fccdeb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0c0',
  'hex',
)

describe('engines as the reference runs them', () => {
  let events: ZmqKvEvents
  let engines: RawEngine[]
  let clock: ReturnType<typeof startEvents>['clock']
  beforeEach(() => {
    ;({ events, clock } = startEvents())
    engines = []
  })
  afterEach(async () => {
    await events.close()
    for (const engine of engines) engine.close()
    expect(events.openSockets).toBe(0)
    expect(clock.pendingTimers).toBe(0)
  })
  const start = async (options: Partial<RawEngineOptions> = {}) => {
    const engine = await RawEngine.start({ port: options.port ?? (await freePorts(1)), ...options })
    engines.push(engine)
    return engine
  }
  const reading = (port: number, more: Record<string, unknown> = {}) =>
    new Reading(events.subscribe(recordOf({ kv_events_endpoint: `tcp://127.0.0.1:${port}` }, more)))

  test('vLLM: topic, 8 byte number, payload', async () => {
    const port = await freePorts(1)
    const engine = await start({ port })
    const reader = reading(port)
    const first = reader.begin()
    await engine.subscribed()
    engine.send(['kv-events', Buffer.from('0000000000000000', 'hex'), mapBatch])
    engine.send(['kv-events', Buffer.from('0000000000000001', 'hex'), arrayBatch])
    expect(await first).toEqual({ type: 'snapshot', rank: 0, sequence: -1, payloads: [] })
    expect(await reader.next()).toEqual({
      type: 'batch',
      rank: 0,
      sequence: 0,
      payload: new Uint8Array(mapBatch),
    })
    expect(await reader.next()).toEqual({
      type: 'batch',
      rank: 0,
      sequence: 1,
      payload: new Uint8Array(arrayBatch),
    })
  })

  test('SGLang: every rank of a multiplexed worker on a port of its own', async () => {
    const port = await freePorts(2)
    const ranks = [await start({ port }), await start({ port: port + 1 })]
    const reader = reading(port, { dp_size: 2, engine: 'sglang' })
    const first = reader.begin()
    await Promise.all(ranks.map((rank) => rank.subscribed()))
    ranks[1]?.publish(utf8('one'))
    expect(await first).toMatchObject({ type: 'snapshot', rank: 1 })
    expect(await reader.brief(1)).toEqual(['B0@1=one'])
    ranks[0]?.publish(utf8('zero'))
    expect(await reader.brief(2)).toEqual(['S-1[]', 'B0=zero'])
  })

  test('a worker that is itself one rank is read at its base port, as rank 0', async () => {
    const port = await freePorts(1)
    const engine = await start({ port })
    const reader = reading(port, { dp_size: 4, dp_rank: 3 })
    const first = reader.begin()
    await engine.subscribed()
    engine.publish(utf8('a'))
    expect(await first).toMatchObject({ rank: 0 })
    expect(await reader.brief(1)).toEqual(['B0=a'])
  })

  test('ATOM: topic and payload, numbered here', async () => {
    const port = await freePorts(1)
    const engine = await start({ port })
    const reader = reading(port, { engine: 'atom' })
    const first = reader.begin()
    await engine.subscribed()
    engine.send(['kv-events', mapBatch])
    engine.send(['kv-events', utf8('b')])
    expect(await first).toMatchObject({ type: 'snapshot', sequence: -1 })
    expect(await reader.next()).toEqual({
      type: 'batch',
      rank: 0,
      sequence: 0,
      payload: new Uint8Array(mapBatch),
    })
    expect(await reader.brief(1)).toEqual(['B1=b'])
  })

  test('ATOM started anew: its numbers say nothing, so the view begins empty with the connection', async () => {
    const port = await freePorts(1)
    const engine = await start({ port })
    const reader = reading(port)
    const first = reader.begin()
    await engine.subscribed()
    engine.send(['kv-events', utf8('a')])
    await first
    expect(await reader.brief(1)).toEqual(['B0=a'])
    engine.close()
    const again = await start({ port })
    expect(await reader.brief(1)).toEqual(['S0[]'])
    await again.subscribed()
    again.send(['kv-events', utf8('b')])
    expect(await reader.brief(1)).toEqual(['B1=b'])
  })

  test('a gap that nobody can fill, and a number that begins anew, empty the view', async () => {
    const port = await freePorts(1)
    const engine = await start({ port })
    const reader = reading(port)
    const first = reader.begin()
    await engine.subscribed()
    engine.publish(utf8('a'))
    await first
    engine.publish(utf8('b'), { lost: true })
    engine.publish(utf8('c'))
    expect(await reader.brief(3)).toEqual(['B0=a', 'S1[]', 'B2=c'])
    engine.send(['kv-events', sequenceFrame(0), utf8('z')])
    expect(await reader.brief(2)).toEqual(['S-1[]', 'B0=z'])
    expect(events.counts).toMatchObject({ gaps: 1, restarts: 1, emptiedViews: 1, replays: 0 })
  })

  test('an engine killed and started again on its port is read on, from its new beginning', async () => {
    const port = await freePorts(1)
    const engine = await start({ port })
    const reader = reading(port)
    const first = reader.begin()
    await engine.subscribed()
    engine.publish(utf8('a'))
    engine.publish(utf8('b'))
    await first
    expect(await reader.brief(2)).toEqual(['B0=a', 'B1=b'])
    engine.close()
    const again = await start({ port })
    await again.subscribed()
    again.publish(utf8('x'))
    expect(await reader.brief(2)).toEqual(['S-1[]', 'B0=x'])
  })

  test('messages that are no batch are dropped and counted, and the iteration goes on', async () => {
    const port = await freePorts(1)
    const engine = await start({ port })
    const reader = reading(port)
    const first = reader.begin()
    await engine.subscribed()
    const number = sequenceFrame(0)
    engine.send(['kv-events'])
    engine.send(['kv-events', number.subarray(1), utf8('short')])
    engine.send(['kv-events', Buffer.alloc(9), utf8('long')])
    engine.send(['kv-events', sequenceFrame(-1), utf8('end')])
    engine.send(['kv-events', ...Array.from({ length: 20 }, () => number)])
    engine.send(['other-topic', number, utf8('not for us')])
    engine.publish(utf8('a'))
    engine.send(['kv-events', utf8('unnumbered')])
    engine.publish(utf8('b'))
    await first
    expect(await reader.brief(2)).toEqual(['B0=a', 'B1=b'])
    expect(events.counts.malformedMessages).toBe(6)
  })

  test('a frame beyond the bound costs the connection and the batch, not the iteration', async () => {
    const small = startEvents({ payloadBytesMax: 1_000, lostAfterMs: 2_000_000_000 })
    await using _closing = small.events
    const port = await freePorts(1)
    const engine = await start({ port })
    const record = recordOf({ kv_events_endpoint: `tcp://127.0.0.1:${port}` })
    const reader = new Reading(small.events.subscribe(record))
    const first = reader.begin()
    await engine.subscribed()
    engine.publish(utf8('a'))
    await first
    engine.publish(new Uint8Array(2_000))
    let isBack = false
    const back = engine.subscribed(2).then(() => {
      isBack = true
    })
    // Each dial gives up the one before, so that they come ever more rarely: one of them is left the time it needs.
    let pollCount = 0
    await until(() => {
      pollCount += 1
      if (Number.isInteger(Math.log2(pollCount))) small.clock.advance(10_000)
      return isBack
    })
    await back
    engine.publish(utf8('c'))
    expect(await reader.brief(3)).toEqual(['B0=a', 'S1[]', 'B2=c'])
  })

  test('all topics are read where the prefix is empty', async () => {
    const port = await freePorts(1)
    const engine = await start({ port, topic: 'anything' })
    const all = startEvents({ topic: '' })
    await using _closing = all.events
    const reader = new Reading(
      all.events.subscribe(recordOf({ kv_events_endpoint: `tcp://127.0.0.1:${port}` })),
    )
    const first = reader.begin()
    await engine.subscribed()
    engine.publish(utf8('a'))
    await first
    expect(await reader.brief(1)).toEqual(['B0=a'])
  })

  test('a slow reader of an engine without replay gets an empty view in place of what it missed', async () => {
    const port = await freePorts(1)
    const engine = await start({ port })
    const tight = startEvents({ bufferBytesMax: 4_096 })
    await using _closing = tight.events
    const reader = new Reading(
      tight.events.subscribe(recordOf({ kv_events_endpoint: `tcp://127.0.0.1:${port}` })),
    )
    const first = reader.begin()
    await engine.subscribed()
    engine.publish(utf8('a'))
    await first
    for (let count = 0; count < 100; count++) engine.publish(new Uint8Array(200))
    await until(() => tight.events.counts.batches === 101)
    const next = await reader.next()
    expect(next).toMatchObject({ type: 'snapshot', payloads: [] })
    let { sequence } = next
    while (sequence < 100) {
      const message = await reader.next()
      expect(message).toMatchObject({ type: 'batch', sequence: sequence + 1 })
      sequence = message.sequence
    }
    expect(tight.events.counts.readersBehind).toBeGreaterThan(0)
  })

  test.each<[string | null, Record<string, unknown>?]>([
    [null],
    [''],
    ['tcp://*:5557'],
    ['tcp://h:0'],
    ['ipc:///tmp/x'],
    ['tcp://h:65535', { dp_size: 2 }],
    ['tcp://h:1', { ext: { kv_events: 'nats' } }],
  ])('a worker with events at %j is not served %j', async (endpoint, more = {}) => {
    const record = recordOf({ kv_events_endpoint: endpoint as string }, more)
    expect(events.serves(record)).toBe(false)
    expect(await new Reading(events.subscribe(record)).isOver()).toBe(true)
  })

  test('a worker that cannot be reached for long enough is lost, until it shows another instance or time has passed', async () => {
    const port = await freePorts(1)
    const reader = reading(port)
    const over = reader.isOver()
    clock.advance(14_999)
    expect(events.openSockets).toBe(1)
    clock.advance(1)
    expect(await over).toBe(true)
    const endpoint = { kv_events_endpoint: `tcp://127.0.0.1:${port}` }
    expect(events.serves(recordOf(endpoint))).toBe(false)
    expect(events.serves(recordOf({ ...endpoint, ext: { instance_id: 'b' } }))).toBe(true)
    clock.advance(5_000)
    expect(events.serves(recordOf(endpoint))).toBe(true)
  })

  test('sockets beyond the bound end the iteration with an error that says what to raise', async () => {
    const few = startEvents({ socketsMax: 2 })
    await using _closing = few.events
    const record = recordOf({ kv_events_endpoint: 'tcp://127.0.0.1:10000' }, { dp_size: 3 })
    const reader = new Reading(few.events.subscribe(record))
    await expect(reader.next()).rejects.toMatchObject({
      code: 'INFERA_FLEET_WORKER_FAILED',
      message: expect.stringContaining('raise socketsMax'),
    })
    expect(few.events.openSockets).toBe(0)
  })
})
