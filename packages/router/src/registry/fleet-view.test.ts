import {
  type Discovery,
  EmbeddedDiscovery,
  type FleetChange,
  type KvEventMessage,
  type KvEventTransport,
  parseWorkerRecord,
  seededRandom,
  silentLogger,
  VirtualClock,
  type WorkerRecord,
} from '@infera/fleet'
import { createPrefixIndex, tiers } from '@infera/native'
import { encode } from '@msgpack/msgpack'
import { describe, expect, test } from 'vitest'
import type { FleetEvent } from '../router-events.js'
import { FleetView } from './fleet-view.js'

const blockSizeTokens = 4

function record(workerId: string, more: Record<string, unknown> = {}): WorkerRecord {
  return parseWorkerRecord({
    worker_id: workerId,
    url: `link://${workerId}`,
    model_name: 'm',
    request_transport: 'link',
    kv_block_size: blockSizeTokens,
    ...more,
  })
}

/** A batch that stores one more block behind others, as an engine writes it. */
function stored(block: number): Uint8Array {
  const tokens = Array.from({ length: blockSizeTokens }, (_, at) => block * 10 + at)
  return encode([
    0,
    [['BlockStored', [1000 + block], block === 0 ? null : 999 + block, tokens, blockSizeTokens]],
  ])
}

const snapshot = (sequence: number, ...payloads: Uint8Array[]): KvEventMessage => ({
  type: 'snapshot',
  rank: 0,
  sequence,
  payloads,
})
const batch = (sequence: number, payload: Uint8Array, rank = 0): KvEventMessage => ({
  type: 'batch',
  rank,
  sequence,
  payload,
})

/** Messages that a test hands to whoever reads, as they are subscribed to. */
class Channel<T> implements AsyncIterableIterator<T> {
  #queue: (() => IteratorResult<T>)[] = []
  #waiter: (() => void) | undefined
  isOver = false

  readonly #signal: AbortSignal | undefined
  readonly #onAbort = () => this.end()

  constructor(signal?: AbortSignal) {
    this.#signal = signal
    signal?.addEventListener('abort', this.#onAbort, { once: true })
  }

  send(...items: T[]): void {
    for (const value of items) this.#add(() => ({ value, done: false }))
  }

  fail(error: Error): void {
    this.#leave()
    this.#add(() => {
      throw error
    })
  }

  end(): void {
    this.#leave()
    this.#add(() => ({ value: undefined, done: true }))
  }

  async next(): Promise<IteratorResult<T>> {
    while (this.#queue.length === 0) {
      await new Promise<void>((resolve) => {
        this.#waiter = resolve
      })
    }
    return (this.#queue.shift() as () => IteratorResult<T>)()
  }

  async return(): Promise<IteratorResult<T>> {
    this.#leave()
    return { value: undefined, done: true }
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #leave(): void {
    this.isOver = true
    this.#signal?.removeEventListener('abort', this.#onAbort)
  }

  #add(step: () => IteratorResult<T>): void {
    this.#queue.push(step)
    this.#waiter?.()
  }
}

class FakeKvEvents implements KvEventTransport {
  readonly kind = 'fake'
  readonly subscriptions: { workerId: string; channel: Channel<KvEventMessage> }[] = []
  serves(worker: WorkerRecord): boolean {
    return worker.request_transport === 'link'
  }
  subscribe(worker: WorkerRecord, { signal }: { signal?: AbortSignal } = {}): AsyncIterable<KvEventMessage> {
    const channel = new Channel<KvEventMessage>(signal)
    this.subscriptions.push({ workerId: worker.worker_id, channel })
    return channel
  }
  latest(): Channel<KvEventMessage> {
    return this.subscriptions.at(-1)?.channel as Channel<KvEventMessage>
  }
}

class FakeDiscovery implements Discovery {
  readonly kind = 'fake'
  readonly watches: Channel<FleetChange>[] = []
  watch({ signal }: { signal?: AbortSignal } = {}): AsyncIterable<FleetChange> {
    const channel = new Channel<FleetChange>(signal)
    this.watches.push(channel)
    return channel
  }
  latest(): Channel<FleetChange> {
    return this.watches.at(-1) as Channel<FleetChange>
  }
  async register(): Promise<never> {
    throw new Error('nobody registers here')
  }
  async close(): Promise<void> {}
}

function makeView(discovery: Discovery, { cacheBlocksMax = 1000 } = {}) {
  const clock = new VirtualClock()
  const kvEvents = new FakeKvEvents()
  const index = createPrefixIndex({ pairsMax: 1000 })
  const forgotten: string[] = []
  const events: FleetEvent[] = []
  const warnings: string[] = []
  const view = new FleetView({
    discovery,
    kvEvents: [kvEvents],
    index,
    live: { settings: { cacheBlocksMax } },
    backoff: { minMs: 100, maxMs: 5000, clock, random: seededRandom(1) },
    logger: { ...silentLogger, warn: (_, message) => warnings.push(message) },
    onForgotten: (routeKey) => forgotten.push(routeKey),
    onEvent: (event) => events.push(event),
  })
  return {
    view,
    clock,
    kvEvents,
    index,
    forgotten,
    events,
    warnings,
    [Symbol.asyncDispose]: () => view.close(),
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
}

const put = (worker: WorkerRecord): FleetChange => ({
  type: 'entryPut',
  entry: { kind: 'worker', record: worker },
})
const wholeFleet = (...workers: WorkerRecord[]): FleetChange => ({
  type: 'snapshot',
  entries: workers.map((worker) => ({ kind: 'worker', record: worker })),
})
const idsOf = (view: FleetView) => view.workers.map(({ record }) => record.worker_id)

describe('who is in the fleet', () => {
  test('workers join, change, drain, lose their lease and leave', async () => {
    const discovery = new EmbeddedDiscovery()
    const a = await discovery.register({ kind: 'worker', record: record('a') })
    await using fleet = makeView(discovery)
    const { view, forgotten } = fleet
    await view.start()
    expect(idsOf(view)).toEqual(['a'])
    const b = await discovery.register({ kind: 'worker', record: record('b', { model_name: 'other' }) })
    await settled()
    expect(idsOf(view)).toEqual(['a', 'b'])
    expect(view.workersOf('other').map(({ record }) => record.worker_id)).toEqual(['b'])
    await a.update(record('a', { note: 'changed' }))
    await b.drain()
    await settled()
    expect(view.worker('a')?.record.note).toBe('changed')
    expect(view.worker('b')?.record.status).toBe('draining')
    expect(forgotten).toEqual([])
    a.expire()
    await settled()
    expect(idsOf(view)).toEqual(['b'])
    expect(view.workersOf('m')).toEqual([])
    await b.deregister()
    await settled()
    expect(idsOf(view)).toEqual([])
    expect(forgotten).toEqual(['a', 'b'])
    await discovery.close()
  })

  test('servers are no workers, and come and go on their own', async () => {
    const discovery = new FakeDiscovery()
    await using fleet = makeView(discovery)
    const started = fleet.view.start()
    const server = { server_id: 'a', url: 'http://a', version: '1', settings: {} }
    discovery
      .latest()
      .send(wholeFleet(record('a')), { type: 'entryPut', entry: { kind: 'server', record: server } })
    await started
    await settled()
    expect(fleet.view.servers).toEqual([server])
    discovery.latest().send({ type: 'entryRemoved', kind: 'server', id: 'a', reason: 'leaseLost' })
    await settled()
    expect(fleet.view.servers).toEqual([])
    expect(idsOf(fleet.view)).toEqual(['a'])
  })

  test('whom a snapshot does not name is gone, and whom it names anew keeps its place and its cache', async () => {
    const discovery = new FakeDiscovery()
    await using fleet = makeView(discovery)
    void fleet.view.start()
    discovery.latest().send(wholeFleet(record('a'), record('b'), record('c')))
    await settled()
    discovery.latest().send(wholeFleet(record('c'), record('d'), record('a')))
    await settled()
    expect(idsOf(fleet.view)).toEqual(['a', 'c', 'd'])
    expect(fleet.forgotten).toEqual(['b'])
    expect(fleet.kvEvents.subscriptions.map(({ workerId }) => workerId)).toEqual(['a', 'b', 'c', 'd'])
    fleet.events.splice(0, 3)
    // Of those that it names as they were, nothing is told.
    expect(fleet.events).toEqual([
      { type: 'workerLeft', workerId: 'b', reason: 'unlisted' },
      { type: 'workerJoined', workerId: 'd', record: record('d'), cacheState: 'waiting' },
    ])
  })

  test.each(['throws', 'ends'])('a watch that %s is opened again, and known workers stay', async (how) => {
    const discovery = new FakeDiscovery()
    await using fleet = makeView(discovery)
    const started = fleet.view.start()
    discovery.latest().send(wholeFleet(record('a'), record('b')))
    await started
    if (how === 'throws') discovery.latest().fail(new Error('registry unreachable'))
    else discovery.latest().end()
    await settled()
    expect(discovery.watches).toHaveLength(1)
    expect(idsOf(fleet.view)).toEqual(['a', 'b'])
    await fleet.clock.advanceAsync(100)
    await settled()
    expect(discovery.watches).toHaveLength(2)
    expect(idsOf(fleet.view)).toEqual(['a', 'b'])
    discovery.latest().send(wholeFleet(record('b'), record('c')))
    await settled()
    expect(idsOf(fleet.view)).toEqual(['b', 'c'])
    expect(fleet.warnings).toHaveLength(how === 'throws' ? 1 : 0)
  })

  test('pauses between watches double up to a longest one, and start anew after a watch that worked', async () => {
    const discovery = new FakeDiscovery()
    await using fleet = makeView(discovery)
    void fleet.view.start()
    const pauseMs = async () => {
      const watchCount = discovery.watches.length
      discovery.latest().fail(new Error('registry unreachable'))
      await settled()
      let waitedMs = 0
      for (; discovery.watches.length === watchCount; waitedMs += 50) {
        await fleet.clock.advanceAsync(50)
        await settled()
      }
      return waitedMs
    }
    const expectPause = async (longestMs: number) => {
      const waitedMs = await pauseMs()
      expect(waitedMs).toBeGreaterThanOrEqual(longestMs / 2)
      expect(waitedMs).toBeLessThanOrEqual(longestMs + 50)
    }
    for (const longestMs of [100, 200, 400, 800, 1600, 3200, 5000, 5000]) await expectPause(longestMs)
    discovery.latest().send(wholeFleet())
    await settled()
    await expectPause(100)
  })

  test('closed before the first snapshot, start resolves', async () => {
    const fleet = makeView(new FakeDiscovery())
    const started = fleet.view.start()
    await fleet.view.close()
    await started
    expect(fleet.view.workers).toEqual([])
    expect(fleet.clock.pendingTimers).toBe(0)
  })
})

describe('what a worker holds', () => {
  async function followed(more: Record<string, unknown> = {}) {
    const discovery = new FakeDiscovery()
    const fleet = makeView(discovery)
    const started = fleet.view.start()
    discovery.latest().send(wholeFleet(record('a', more)))
    await started
    await settled()
    const blocks = (rank = 0) => {
      const view = fleet.view.worker('a')?.view(rank)
      return view && fleet.index.blocksOf(view.target, tiers.device)
    }
    const state = () => fleet.view.worker('a')?.cacheState
    return { ...fleet, discovery, blocks, state }
  }

  test('is its snapshot and then its batches', async () => {
    await using fleet = await followed()
    expect(fleet.state()).toBe('waiting')
    fleet.kvEvents.latest().send(snapshot(4, stored(0), stored(1)), batch(5, stored(2)))
    await settled()
    expect(fleet.state()).toBe('live')
    expect(fleet.blocks()).toBe(3)
    expect(fleet.index.stats().pairs).toBe(3)
    expect(fleet.view.counts).toMatchObject({ snapshots: 1, batches: 3, gaps: 0 })
  })

  test('starts anew with every snapshot', async () => {
    await using fleet = await followed()
    fleet.kvEvents
      .latest()
      .send(snapshot(4, stored(0), stored(1)), snapshot(9, stored(0)), batch(10, stored(1)))
    await settled()
    expect(fleet.blocks()).toBe(2)
    expect(fleet.index.stats().pairs).toBe(2)
  })

  test('is not changed by a batch that was seen before', async () => {
    await using fleet = await followed()
    const cleared = encode([0, [['AllBlocksCleared']]])
    fleet.kvEvents.latest().send(snapshot(4, stored(0)), batch(4, cleared), batch(3, cleared))
    await settled()
    expect(fleet.blocks()).toBe(1)
    expect(fleet.view.counts.duplicateBatches).toBe(2)
  })

  test('is forgotten after a gap, and learned again from a new subscription', async () => {
    await using fleet = await followed()
    const first = fleet.kvEvents.latest()
    first.send(snapshot(4, stored(0), stored(1)), batch(6, stored(2)))
    await settled()
    expect(fleet.blocks()).toBe(0)
    expect(fleet.index.stats().pairs).toBe(0)
    expect(fleet.view.counts.gaps).toBe(1)
    expect(first.isOver).toBe(true)
    expect(fleet.state()).toBe('waiting')
    await fleet.clock.advanceAsync(100)
    await settled()
    expect(fleet.kvEvents.subscriptions).toHaveLength(2)
    fleet.kvEvents.latest().send(snapshot(6, stored(0), stored(1), stored(2)))
    await settled()
    expect(fleet.blocks()).toBe(3)
  })

  test('stays in use when the subscription breaks, which is opened again', async () => {
    await using fleet = await followed()
    fleet.kvEvents.latest().send(snapshot(4, stored(0)))
    fleet.kvEvents.latest().fail(new Error('connection lost'))
    await settled()
    expect(fleet.blocks()).toBe(1)
    await fleet.clock.advanceAsync(100)
    await settled()
    expect(fleet.kvEvents.subscriptions).toHaveLength(2)
    expect(fleet.warnings).toHaveLength(1)
  })

  test('is void when the worker comes back as a new process', async () => {
    await using fleet = await followed({ ext: { instance_id: 'one' } })
    const first = fleet.kvEvents.latest()
    first.send(snapshot(4, stored(0)))
    await settled()
    fleet.discovery.latest().send(put(record('a', { ext: { instance_id: 'two' } })))
    await settled()
    expect(first.isOver).toBe(true)
    expect(fleet.blocks()).toBe(0)
    expect(fleet.index.stats().pairs).toBe(0)
    expect(fleet.forgotten).toEqual(['a'])
    first.send(batch(5, stored(1)))
    fleet.kvEvents.latest().send(snapshot(-1))
    await settled()
    expect([fleet.blocks(), fleet.state()]).toEqual([0, 'live'])
  })

  test('stays when the same process says something else of itself', async () => {
    await using fleet = await followed({ ext: { instance_id: 'one' } })
    fleet.kvEvents.latest().send(snapshot(4, stored(0)))
    await settled()
    fleet.discovery
      .latest()
      .send(put(record('a', { ext: { instance_id: 'one', note: 1 }, status: 'draining' })))
    await settled()
    expect(fleet.blocks()).toBe(1)
    expect(fleet.kvEvents.subscriptions).toHaveLength(1)
  })

  test('is let go of when the worker leaves', async () => {
    await using fleet = await followed()
    fleet.kvEvents.latest().send(snapshot(4, stored(0)))
    await settled()
    fleet.discovery.latest().send({ type: 'entryRemoved', kind: 'worker', id: 'a', reason: 'leaseLost' })
    await settled()
    expect(fleet.index.stats().pairs).toBe(0)
    expect(fleet.kvEvents.latest().isOver).toBe(true)
  })

  test('is degraded after three batches in a row that cannot be read', async () => {
    await using fleet = await followed()
    const garbage = Uint8Array.of(0xc1)
    for (const sequence of [1, 2, 3]) {
      fleet.kvEvents.latest().send(snapshot(sequence - 1, stored(0)))
      await settled()
      expect([fleet.state(), fleet.blocks()]).toEqual(['live', 1])
      fleet.kvEvents.latest().send(batch(sequence, garbage))
      await settled()
      expect([fleet.state(), fleet.blocks()]).toEqual([sequence < 3 ? 'waiting' : 'degraded', 0])
      await fleet.clock.advanceAsync(5_000)
    }
    expect(fleet.warnings).toHaveLength(1)
    expect(fleet.view.counts.malformedBatches).toBe(3)
  })

  test('is kept apart by rank, and a rank that it does not have is counted', async () => {
    await using fleet = await followed({ dp_size: 2 })
    fleet.kvEvents
      .latest()
      .send(
        { ...snapshot(0, stored(0)), rank: 0 },
        { ...snapshot(0, stored(0), stored(1)), rank: 1 },
        batch(1, stored(1), 7),
      )
    await settled()
    expect([fleet.blocks(0), fleet.blocks(1)]).toEqual([1, 2])
    expect(fleet.view.counts.unknownRanks).toBe(1)
  })

  test.each([
    [{ kv_block_size: null }, 'no-block-size'],
    [{ kv_block_size: 0 }, 'no-block-size'],
    [{ request_transport: 'http' }, 'no-event-source'],
  ])('is not followed for %j, and the worker says why: %s', async (more, why) => {
    await using fleet = await followed(more)
    expect(fleet.state()).toBe(why)
    expect(fleet.blocks()).toBeUndefined()
    expect(fleet.kvEvents.subscriptions).toEqual([])
  })
})
