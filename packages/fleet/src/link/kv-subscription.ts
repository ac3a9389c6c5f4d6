import { LinkProtocolError, TransportError } from '../errors.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { KvEventMessage } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { LinkFrame } from './frames.js'
import { KvAssembler, KvTooLargeError, type KvWhole } from './kv-parts.js'

export type KvStreamFrame = Extract<LinkFrame, { type: 'kvSnapshot' | 'kvBatch' | 'error' }>

/** How a subscription reaches its worker. */
export interface KvStreams {
  /** Subscribes to a rank; undefined when the connection takes no more streams. */
  open(rank: number, accept: (frame: KvStreamFrame) => void): number | undefined
  cancel(streamId: number): void
  /** Calls back once, when the connection is lost; at once if it is. Returns what takes that back. */
  onLost(listener: () => void): () => void
}

export interface KvSubscriptionOptions {
  readonly workerId: string
  readonly ranks: readonly number[]
  readonly bufferBytesMax: number
  readonly snapshotBytesMax: number
  /** Pause before a rank is subscribed to again after a gap, so that a faulty worker makes no hot loop. */
  readonly resubscribeDelayMs: number
  readonly clock: Clock
  readonly logger: Logger
  readonly signal: AbortSignal | undefined
}

/** Charged for each held batch on top of its bytes. */
const batchOverheadBytes = 64

interface RankStream {
  readonly rank: number
  streamId: number | undefined
  assembler: KvAssembler
  /** Of the newest message handed on; undefined until the snapshot. */
  lastSequence: number | undefined
  retry: Timer | undefined
}

/**
 * The server's end of one event subscription: one stream per rank, joined for one reader. Batches are handed on only in
 * an unbroken row after a snapshot. A gap gets the rank a fresh snapshot; a reader that is too far behind loses what it did
 * not read, and all ranks get fresh snapshots when it reads again.
 */
export class KvSubscription implements AsyncIterableIterator<KvEventMessage> {
  readonly #options: KvSubscriptionOptions
  readonly #streams: KvStreams
  readonly #ranks: RankStream[]
  readonly #onAbort = () => this.#finish()
  #forgetLoss = () => {}
  #queue: KvEventMessage[] = []
  #batchBytes = 0
  #mustOpen = true
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
      lastSequence: undefined,
      retry: undefined,
    }))
    options.signal?.addEventListener('abort', this.#onAbort, { once: true })
    this.#forgetLoss = streams.onLost(() => this.#finish())
    if (options.signal?.aborted) this.#finish()
  }

  next(): Promise<IteratorResult<KvEventMessage>> {
    if (this.#mustOpen && !this.#isOver) {
      this.#mustOpen = false
      for (const stream of [...this.#ranks]) this.#open(stream)
    }
    const message = this.#queue.shift()
    if (message) {
      this.#batchBytes -= costOf(message)
      return Promise.resolve({ value: message, done: false })
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
    if (!whole) return
    if (whole.type === 'snapshot') {
      this.#handSnapshot(stream, whole)
      return
    }
    if (stream.lastSequence === undefined) throw new LinkProtocolError('event batch before its snapshot')
    // What the snapshot contained already may be told once more.
    if (whole.sequence <= stream.lastSequence) return
    if (whole.sequence !== stream.lastSequence + 1) {
      const row = `batch ${whole.sequence} after ${stream.lastSequence}`
      this.#subscribeAgain(stream, row)
      return
    }
    stream.lastSequence = whole.sequence
    this.#hand({ type: 'batch', rank: stream.rank, sequence: whole.sequence, payload: whole.payload })
  }

  #handSnapshot(stream: RankStream, whole: Extract<KvWhole, { type: 'snapshot' }>): void {
    const { rank } = stream
    stream.lastSequence = whole.sequence
    // It replaces whatever the reader has not seen of this rank, so at most one snapshot a rank is ever held.
    this.#queue = this.#queue.filter((message) => message.rank !== rank)
    this.#batchBytes = this.#queue.reduce((sum, message) => sum + costOf(message), 0)
    this.#hand({ type: 'snapshot', rank, sequence: whole.sequence, payloads: whole.payloads })
  }

  #hand(message: KvEventMessage): void {
    const waiter = this.#waiter
    if (waiter) {
      this.#waiter = undefined
      waiter.resolve({ value: message, done: false })
      return
    }
    const cost = costOf(message)
    if (cost > 0 && this.#batchBytes + cost > this.#options.bufferBytesMax) {
      this.#overflow()
      return
    }
    this.#queue.push(message)
    this.#batchBytes += cost
  }

  #overflow(): void {
    const { workerId, logger, bufferBytesMax } = this.#options
    logger.debug({ workerId, bufferBytesMax }, 'reader of kv events is behind: it will get fresh snapshots')
    for (const stream of this.#ranks) this.#cancel(stream)
    this.#queue = []
    this.#batchBytes = 0
    // Opened again when the reader comes back: a snapshot for somebody who does not read would only be stale.
    this.#mustOpen = true
  }

  #subscribeAgain(stream: RankStream, why: string): void {
    const { workerId, logger, clock, resubscribeDelayMs } = this.#options
    logger.warn({ workerId, rank: stream.rank, why }, 'kv events have a gap: subscribing again')
    this.#cancel(stream)
    stream.retry = clock.setTimer(resubscribeDelayMs, () => {
      stream.retry = undefined
      if (!this.#isOver && !this.#mustOpen) this.#open(stream)
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
    this.#batchBytes = 0
    const waiter = this.#waiter
    this.#waiter = undefined
    if (!waiter) this.#error = error
    else if (error) waiter.reject(error)
    else waiter.resolve({ value: undefined, done: true })
  }

  #newAssembler(): KvAssembler {
    const { snapshotBytesMax, bufferBytesMax } = this.#options
    return new KvAssembler({ snapshotBytesMax, batchBytesMax: bufferBytesMax })
  }
}

/** Snapshots have a bound of their own, and at most one a rank is held. */
function costOf(message: KvEventMessage): number {
  return message.type === 'batch' ? message.payload.byteLength + batchOverheadBytes : 0
}
