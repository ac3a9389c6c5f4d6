import { LinkProtocolError, TransportError } from '../errors.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { KvEventMessage } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { LinkFrame } from './frames.js'
import { KvAssembler, KvTooLargeError, type KvWhole } from './kv-parts.js'
import { frameCostBytes } from './limits.js'

export type KvStreamFrame = Extract<LinkFrame, { type: 'kvSnapshot' | 'kvBatch' | 'error' }>

/** How a subscription reaches its worker. */
export interface KvStreams {
  /** Subscribes to a rank; undefined when the connection takes no more streams. */
  open(rank: number, accept: (frame: KvStreamFrame) => void): number | undefined
  /** So much of what that stream brought is not held any more. Nothing for a stream that has ended. */
  release(streamId: number, costBytes: number): void
  cancel(streamId: number): void
  /** Calls back once, when the connection is lost; at once if it is. Returns what takes that back. */
  onLost(listener: () => void): () => void
}

export interface KvSubscriptionOptions {
  readonly workerId: string
  readonly ranks: readonly number[]
  /** Credit of a rank's stream. */
  readonly windowBytes: number
  readonly snapshotBytesMax: number
  /** Pause before a rank is subscribed to again after a gap, so that a faulty worker makes no hot loop. */
  readonly resubscribeDelayMs: number
  readonly clock: Clock
  readonly logger: Logger
  readonly signal: AbortSignal | undefined
}

interface RankStream {
  readonly rank: number
  streamId: number | undefined
  assembler: KvAssembler
  /** What the parts of a batch cost that is not whole yet. */
  partsCostBytes: number
  /** Of the newest message handed on; undefined until the snapshot. */
  lastSequence: number | undefined
  retry: Timer | undefined
}

interface Held {
  readonly message: KvEventMessage
  /** The stream that brought it, and what it cost there. */
  readonly streamId: number
  readonly costBytes: number
}

/**
 * The server's end of one event subscription: one stream per rank, joined for one reader. Batches are handed on only in
 * an unbroken row after a snapshot. A gap gets the rank a fresh snapshot. A reader that is behind holds up its worker by not
 * giving credit back; what the worker then cannot keep it makes up for with a fresh snapshot.
 */
export class KvSubscription implements AsyncIterableIterator<KvEventMessage> {
  readonly #options: KvSubscriptionOptions
  readonly #streams: KvStreams
  readonly #ranks: RankStream[]
  readonly #onAbort = () => this.#finish()
  #forgetLoss = () => {}
  #queue: Held[] = []
  #hasBegun = false
  #isOver = false
  #error: TransportError | undefined
  #waiter:
    | { resolve(result: IteratorResult<KvEventMessage>): void; reject(error: TransportError): void }
    | undefined

  constructor(streams: KvStreams, options: KvSubscriptionOptions) {
    this.#streams = streams
    this.#options = options
    this.#ranks = options.ranks.map((rank) => ({
      rank,
      streamId: undefined,
      assembler: this.#newAssembler(),
      partsCostBytes: 0,
      lastSequence: undefined,
      retry: undefined,
    }))
    options.signal?.addEventListener('abort', this.#onAbort, { once: true })
    this.#forgetLoss = streams.onLost(() => this.#finish())
    if (options.signal?.aborted) this.#finish()
  }

  next(): Promise<IteratorResult<KvEventMessage>> {
    if (!this.#hasBegun && !this.#isOver) {
      this.#hasBegun = true
      for (const stream of [...this.#ranks]) this.#open(stream)
    }
    const held = this.#queue.shift()
    if (held) {
      this.#streams.release(held.streamId, held.costBytes)
      return Promise.resolve({ value: held.message, done: false })
    }
    if (this.#error) {
      const error = this.#error
      this.#error = undefined
      return Promise.reject(error)
    }
    if (this.#isOver) return Promise.resolve({ value: undefined, done: true })
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject }
    })
  }

  return(): Promise<IteratorResult<KvEventMessage>> {
    this.#finish()
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #open(stream: RankStream): void {
    stream.assembler = this.#newAssembler()
    stream.partsCostBytes = 0
    stream.lastSequence = undefined
    let streamId: number | undefined
    const isCurrent = () => stream.streamId === streamId && !this.#isOver
    streamId = this.#streams.open(stream.rank, (frame) => {
      if (isCurrent()) this.#accept(stream, frame)
    })
    if (streamId === undefined) this.#giveUp(stream, 'the connection takes no more streams')
    else stream.streamId = streamId
  }

  #accept(stream: RankStream, frame: KvStreamFrame): void {
    if (frame.type === 'error') {
      stream.streamId = undefined
      this.#giveUp(stream, `${frame.head.message} (${frame.head.code})`)
      return
    }
    let whole: KvWhole | undefined
    try {
      whole = stream.assembler.accept(frame)
    } catch (error) {
      if (!(error instanceof KvTooLargeError)) throw error
      if (frame.type === 'kvBatch') {
        this.#subscribeAgain(stream, error.message)
        return
      }
      this.#cancel(stream)
      this.#giveUp(stream, `${error.message}; raise limits.snapshotBytesMax`)
      return
    }
    const { streamId } = frame
    const costBytes = frame.bytes.byteLength + frameCostBytes
    if (frame.type === 'kvSnapshot') {
      // A snapshot has a bound of its own, and at most one a rank is ever held.
      this.#streams.release(streamId, costBytes)
      if (whole?.type === 'snapshot') this.#handSnapshot(stream, whole, streamId)
      return
    }
    stream.partsCostBytes += costBytes
    if (whole?.type !== 'batch') return
    const batchCostBytes = stream.partsCostBytes
    stream.partsCostBytes = 0
    if (stream.lastSequence === undefined) throw new LinkProtocolError('event batch before its snapshot')
    // What the snapshot contained already may be told once more.
    if (whole.sequence <= stream.lastSequence) {
      this.#streams.release(streamId, batchCostBytes)
      return
    }
    if (whole.sequence !== stream.lastSequence + 1) {
      const row = `batch ${whole.sequence} after ${stream.lastSequence}`
      this.#subscribeAgain(stream, row)
      return
    }
    stream.lastSequence = whole.sequence
    const message = {
      type: 'batch',
      rank: stream.rank,
      sequence: whole.sequence,
      payload: whole.payload,
    } as const
    this.#hand({ message, streamId, costBytes: batchCostBytes })
  }

  #handSnapshot(stream: RankStream, whole: Extract<KvWhole, { type: 'snapshot' }>, streamId: number): void {
    const { rank } = stream
    stream.lastSequence = whole.sequence
    // It replaces whatever the reader has not seen of this rank.
    const replaced = this.#queue.filter(({ message }) => message.rank === rank)
    this.#queue = this.#queue.filter(({ message }) => message.rank !== rank)
    const message = { type: 'snapshot', rank, sequence: whole.sequence, payloads: whole.payloads } as const
    this.#hand({ message, streamId, costBytes: 0 })
    for (const held of replaced) this.#streams.release(held.streamId, held.costBytes)
  }

  #hand(held: Held): void {
    const waiter = this.#waiter
    if (!waiter) {
      this.#queue.push(held)
      return
    }
    this.#waiter = undefined
    waiter.resolve({ value: held.message, done: false })
    this.#streams.release(held.streamId, held.costBytes)
  }

  #subscribeAgain(stream: RankStream, why: string): void {
    const { workerId, logger, clock, resubscribeDelayMs } = this.#options
    logger.warn({ workerId, rank: stream.rank, why }, 'kv events have a gap: subscribing again')
    this.#cancel(stream)
    stream.retry = clock.setTimer(resubscribeDelayMs, () => {
      stream.retry = undefined
      if (!this.#isOver) this.#open(stream)
    })
  }

  #giveUp(stream: RankStream, why: string): void {
    const { workerId, logger } = this.#options
    logger.warn({ workerId, rank: stream.rank, why }, 'no kv events of this rank')
    this.#ranks.splice(this.#ranks.indexOf(stream), 1)
    if (this.#ranks.length > 0) return
    const message = `worker '${workerId}' has no kv events: ${why}`
    this.#finish(new TransportError('INFERA_FLEET_WORKER_FAILED', workerId, message))
  }

  #cancel(stream: RankStream): void {
    stream.retry?.cancel()
    stream.retry = undefined
    if (stream.streamId !== undefined) this.#streams.cancel(stream.streamId)
    stream.streamId = undefined
  }

  #finish(error?: TransportError): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#options.signal?.removeEventListener('abort', this.#onAbort)
    this.#forgetLoss()
    for (const stream of this.#ranks) this.#cancel(stream)
    this.#queue = []
    const waiter = this.#waiter
    this.#waiter = undefined
    if (!waiter) this.#error = error
    else if (error) waiter.reject(error)
    else waiter.resolve({ value: undefined, done: true })
  }

  #newAssembler(): KvAssembler {
    const { snapshotBytesMax, windowBytes } = this.#options
    return new KvAssembler({ snapshotBytesMax, batchBytesMax: windowBytes / 2 })
  }
}
