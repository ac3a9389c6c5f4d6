import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { KvEventBatch, KvEventMessage, KvEventSource } from '../ports/kv-events.js'
import { silentLogger } from '../ports/logger.js'
import { VirtualClock } from '../virtual-clock.js'
import { CreditBudget, CreditWindow } from './credit-window.js'
import { KvFeed } from './kv-feed.js'
import { kvFrames } from './kv-parts.js'
import { type KvStreamFrame, KvSubscription } from './kv-subscription.js'
import { frameCostBytes } from './limits.js'
import { SendCredit } from './send-credit.js'

/** An engine whose cache is the row of all that it published: one byte for each batch. */
class ByteRow implements KvEventSource {
  readonly ranks = [0]
  readonly row: number[] = []
  readonly listeners = new Set<(batch: KvEventBatch) => void>()

  publish(sizeBytes = 1): void {
    const sequence = this.row.length
    this.row.push(sequence % 256)
    for (const listener of this.listeners) {
      listener({ rank: 0, sequence, payload: new Uint8Array(sizeBytes).fill(sequence % 256) })
    }
  }

  snapshot() {
    return { sequence: this.row.length - 1, payloads: this.row.map((byte) => Uint8Array.of(byte)) }
  }

  subscribe(listener: (batch: KvEventBatch) => void) {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }
}

describe('KvFeed', () => {
  test('a batch that is published before the snapshot is taken comes in it, one after it comes next', () => {
    const source = new ByteRow()
    const feed = new KvFeed(source, 0, { bufferBytesMax: 1_000, batchBytesMax: 1_000, onReady: () => {} })
    source.publish()
    expect(feed.take()).toMatchObject({ type: 'snapshot', sequence: 0 })
    source.publish()
    source.publish()
    expect(feed.take()).toMatchObject({ type: 'batch', sequence: 1 })
    expect(feed.take()).toMatchObject({ type: 'batch', sequence: 2 })
    expect(feed.take()).toBeUndefined()
  })

  test('beyond the bound a new snapshot takes the place of what waits', () => {
    const source = new ByteRow()
    const feed = new KvFeed(source, 0, { bufferBytesMax: 200, batchBytesMax: 100, onReady: () => {} })
    feed.take()
    for (let count = 0; count < 10; count++) source.publish()
    expect(feed.take()).toMatchObject({ type: 'snapshot', sequence: 9 })
    source.publish(1_000)
    expect(feed.take()).toMatchObject({ type: 'snapshot', sequence: 10 })
    source.publish(101)
    expect(feed.take()).toMatchObject({ type: 'snapshot', sequence: 11 })
    source.publish(100)
    expect(feed.take()).toMatchObject({ type: 'batch', sequence: 12 })
    expect(feed.take()).toBeUndefined()
  })

  test('other ranks are not its own, and closed it listens no more', () => {
    const source = new ByteRow()
    const feed = new KvFeed(source, 1, { bufferBytesMax: 200, batchBytesMax: 100, onReady: () => {} })
    feed.take()
    source.publish()
    expect(feed.take()).toBeUndefined()
    feed.close()
    expect(source.listeners.size).toBe(0)
  })
})

describe('KvSubscription', () => {
  test('however slow the wire and the reader are, the reader’s row is the engine’s', async () => {
    const step = fc.constantFrom('publish', 'publish', 'carry', 'carryAll', 'read', 'lose', 'wait')
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 80 }),
        fc.integer({ min: 70, max: 400 }),
        // Half of it has room for one part.
        fc.integer({ min: 2 * (16 + frameCostBytes), max: 1_000 }),
        async (steps, bound, windowBytes) => {
          const source = new ByteRow()
          const wire = new FakeWire(source, bound, windowBytes)
          const subscription = wire.subscribe(windowBytes)
          const row = new Row()
          let pending: Promise<IteratorResult<KvEventMessage>> | undefined
          const read = async () => {
            pending ??= subscription.next()
            const next = await Promise.race([
              pending,
              new Promise<undefined>((resolve) => {
                setImmediate(() => resolve(undefined))
              }),
            ])
            if (!next) return
            pending = undefined
            if (!next.done) row.apply(next.value)
          }
          for (const each of steps) {
            if (each === 'publish') source.publish()
            else if (each === 'carry') wire.carry()
            else if (each === 'carryAll') while (wire.carry());
            else if (each === 'lose') wire.loseFrame()
            else if (each === 'wait') wire.clock.advance(500)
            else await read()
            expect(wire.usedBytes).toBeLessThanOrEqual(windowBytes)
          }
          source.publish()
          while (row.bytes.length < source.row.length) {
            // Once more than once: a loss shows only with the batch after it.
            if (!wire.carry()) source.publish()
            wire.clock.advance(500)
            await read()
          }
          expect(row.bytes).toEqual(source.row.slice(0, row.bytes.length))
          await subscription.return()
          expect(wire.openStreams).toBe(0)
          expect(wire.usedBytes).toBe(0)
        },
      ),
      { numRuns: 150 },
    )
  })

  test('a batch before its snapshot is a protocol error', () => {
    const { subscription, sent } = manual()
    void subscription.next()
    const frame = { type: 'kvBatch' as const, streamId: 1, first: true, last: true, sequence: 0 }
    expect(() => sent[0]?.({ ...frame, bytes: new Uint8Array() })).toThrow(/before its snapshot/)
  })

  test('of snapshots that nobody read only the newest is kept, with what came after it', async () => {
    const { subscription, sent } = manual()
    const first = subscription.next()
    const part = { streamId: 1, first: true, last: true, bytes: new Uint8Array() }
    const send = (type: 'kvSnapshot' | 'kvBatch', sequence: number) => sent[0]?.({ ...part, type, sequence })
    send('kvSnapshot', 0)
    for (const sequence of [1, 2]) send('kvBatch', sequence)
    for (const sequence of [5, 9]) send('kvSnapshot', sequence)
    // Told once more, and dropped: the snapshot contains it.
    for (const sequence of [9, 10]) send('kvBatch', sequence)
    expect((await first).value).toMatchObject({ type: 'snapshot', sequence: 0 })
    expect((await subscription.next()).value).toMatchObject({ type: 'snapshot', sequence: 9 })
    expect((await subscription.next()).value).toMatchObject({ type: 'batch', sequence: 10 })
  })

  test('parts of a snapshot are credited as they come; a batch when it was read, replaced, or known already', async () => {
    const { subscription, sent, released } = manual()
    const first = subscription.next()
    const part = { streamId: 1, bytes: new Uint8Array(10), sequence: 0, last: true, first: true }
    const empty = { ...part, type: 'kvSnapshot' as const, bytes: new Uint8Array() }
    const flushed = () => released.splice(0).filter((costBytes) => costBytes > 0)
    sent[0]?.({ ...empty, last: false })
    expect(flushed()).toEqual([64])
    sent[0]?.({ ...empty, first: false })
    await first
    expect(flushed()).toEqual([64])
    // Known already.
    sent[0]?.({ ...part, type: 'kvBatch', sequence: 0 })
    expect(flushed()).toEqual([74])
    // In two parts, and read later.
    sent[0]?.({ ...part, type: 'kvBatch', sequence: 1, last: false })
    sent[0]?.({ ...part, type: 'kvBatch', first: false })
    expect(flushed()).toEqual([])
    await subscription.next()
    expect(flushed()).toEqual([148])
    // Replaced before it was read.
    sent[0]?.({ ...part, type: 'kvBatch', sequence: 2 })
    expect(flushed()).toEqual([])
    sent[0]?.({ ...empty, sequence: 3 })
    expect(flushed()).toEqual([64, 74])
    // To a reader that waits.
    await subscription.next()
    const next = subscription.next()
    sent[0]?.({ ...part, type: 'kvBatch', sequence: 4 })
    expect(flushed()).toEqual([74])
    await next
  })

  test('the loss of the connection ends it, also while it holds no stream', async () => {
    const { subscription, lose } = manual()
    lose()
    expect((await subscription.next()).done).toBe(true)
  })

  test('no room for a stream is an error that says so', async () => {
    const { subscription } = manual({ isFull: true })
    await expect(subscription.next()).rejects.toMatchObject({ code: 'INFERA_FLEET_WORKER_FAILED' })
    expect((await subscription.next()).done).toBe(true)
  })
})

function subscriptionTo(
  streams: ConstructorParameters<typeof KvSubscription>[0],
  clock: VirtualClock,
  bound: number,
) {
  return new KvSubscription(streams, {
    workerId: 'w:1',
    ranks: [0],
    windowBytes: bound,
    snapshotBytesMax: 100_000,
    resubscribeDelayMs: 500,
    clock,
    logger: silentLogger,
    signal: undefined,
  })
}

/** A subscription whose other end is the test's. */
function manual({ isFull = false } = {}) {
  const sent: ((frame: KvStreamFrame) => void)[] = []
  const released: number[] = []
  let lose = () => {}
  const streams = {
    open: (_rank: number, accept: (frame: KvStreamFrame) => void) => (isFull ? undefined : sent.push(accept)),
    release: (_streamId: number, costBytes: number) => released.push(costBytes),
    cancel: () => {},
    onLost: (listener: () => void) => {
      lose = listener
      return () => {}
    },
  }
  return {
    subscription: subscriptionTo(streams, new VirtualClock(), 1_000),
    sent,
    released,
    lose: () => lose(),
  }
}

interface WireStream {
  readonly feed: KvFeed
  readonly credit: SendCredit
  readonly window: CreditWindow
  readonly accept: (frame: KvStreamFrame) => void
}

/** Feeds and subscriptions with a wire between them that moves only when told. */
class FakeWire {
  readonly clock = new VirtualClock()
  readonly #source: KvEventSource
  readonly #bound: number
  readonly #budget: CreditBudget
  readonly #streams = new Map<number, WireStream>()
  #frames: KvStreamFrame[] = []
  #lastId = 0

  /** @param bound of what waits at the feed; that at the subscription is `windowBytes` */
  constructor(source: KvEventSource, bound: number, windowBytes: number) {
    this.#source = source
    this.#bound = bound
    this.#budget = new CreditBudget({
      streamWindowBytes: windowBytes,
      streamWindowMinBytes: windowBytes,
      connectionWindowBytes: 0,
    })
  }

  get openStreams(): number {
    return this.#streams.size
  }

  get usedBytes(): number {
    return this.#budget.usedBytes
  }

  subscribe(bound: number): KvSubscription {
    return subscriptionTo(
      {
        open: (rank, accept) => {
          const id = ++this.#lastId
          const options = { bufferBytesMax: this.#bound, batchBytesMax: 16, onReady: () => {} }
          const feed = new KvFeed(this.#source, rank, options)
          // Credit travels with no delay: what is under way then comes at the worst moment for the bounds.
          const window = new CreditWindow(this.#budget, (bytes) => credit.add(bytes))
          const credit = new SendCredit(window.open())
          this.#streams.set(id, { feed, credit, window, accept })
          return id
        },
        release: (id, costBytes) => this.#streams.get(id)?.window.release(costBytes),
        cancel: (id) => {
          const stream = this.#streams.get(id)
          stream?.feed.close()
          stream?.window.end()
          stream?.window.release(stream.window.heldBytes)
          this.#streams.delete(id)
        },
        onLost: () => () => {},
      },
      this.clock,
      bound,
    )
  }

  /** Moves one frame. @returns whether there was one */
  carry(): boolean {
    this.#load()
    const frame = this.#frames[0]
    if (!frame || frame.type === 'error') return false
    const stream = this.#streams.get(frame.streamId)
    const { byteLength } = frame.bytes
    if (stream && stream.credit.roomBytes < Math.max(1, byteLength)) return false
    this.#frames.shift()
    stream?.credit.spend(byteLength)
    stream?.window.receive(byteLength + frameCostBytes)
    stream?.accept(frame)
    return true
  }

  /** Drops one whole batch. */
  loseFrame(): void {
    this.#load()
    const at = this.#frames.findIndex((frame) => frame.type === 'kvBatch' && frame.first && frame.last)
    if (at >= 0) this.#frames.splice(at, 1)
  }

  #load(): void {
    for (const [id, stream] of this.#streams) {
      const { feed, credit } = stream
      // Taken when the first part has credit; the others wait for theirs in `carry`.
      const isIdle = !this.#frames.some((frame) => frame.streamId === id)
      if (!isIdle || credit.roomBytes === 0) continue
      const message = feed.take()
      if (!message) continue
      const snapshotBytesMax = 100_000
      for (const frame of kvFrames(id, message, { partBytesMax: 16, snapshotBytesMax }))
        this.#frames.push(frame)
    }
  }
}

/** A reader's row. Throws where what it is told does not fit together. */
class Row {
  bytes: number[] = []

  apply(message: KvEventMessage): void {
    if (message.type === 'snapshot') this.bytes = message.payloads.map((payload) => payload[0] ?? -1)
    else this.bytes.push(message.payload[0] ?? -1)
    expect(this.bytes.length).toBe(message.sequence + 1)
  }
}
