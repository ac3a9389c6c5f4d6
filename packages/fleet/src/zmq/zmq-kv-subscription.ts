import { TransportError } from '../errors.js'
import { KvReaderQueue } from '../kv-reader-queue.js'
import type { Timer } from '../ports/clock.js'
import type { KvEventMessage } from '../ports/kv-events.js'
import type { ZmqCounts } from './counts.js'
import { RankReader, type ReaderSettings, type WorkerEndpoints } from './rank-reader.js'
import type { ZmqSockets } from './sockets.js'

export interface ZmqKvSubscriptionOptions extends ReaderSettings {
  readonly workerId: string
  readonly rankCount: number
  readonly endpoints: WorkerEndpoints
  readonly bufferBytesMax: number
  /** How long no rank may be connected. */
  readonly lostAfterMs: number
  readonly sockets: ZmqSockets
  readonly counts: ZmqCounts
  readonly signal: AbortSignal | undefined
  /** Called once when the iteration has ended. `isLost`: because the worker is. */
  readonly onEnd: (isLost: boolean) => void
}

/** One reader's subscription to all ranks of one worker. Sockets are opened by the first `next`. */
export class ZmqKvSubscription implements AsyncIterableIterator<KvEventMessage> {
  readonly #options: ZmqKvSubscriptionOptions
  readonly #queue: KvReaderQueue
  readonly #readers: readonly RankReader[]
  readonly #up = new Set<number>()
  readonly #onAbort = () => this.#finish()
  #lossTimer: Timer | undefined
  #hasBegun = false
  #isOver = false

  constructor(options: ZmqKvSubscriptionOptions) {
    this.#options = options
    const { workerId, rankCount, bufferBytesMax, signal } = options
    this.#queue = new KvReaderQueue(bufferBytesMax, () => {
      for (const reader of this.#readers) reader.taken()
    })
    this.#readers = Array.from({ length: rankCount }, (_, rank) => {
      return new RankReader({
        ...options,
        rank,
        queue: this.#queue,
        heldBytesMax: Math.ceil(bufferBytesMax / rankCount),
        onUp: () => {
          this.#up.add(rank)
          this.#lossTimer?.cancel()
        },
        onDown: () => {
          this.#up.delete(rank)
          if (this.#up.size === 0) this.#armLoss()
        },
        onFailed: (why) => {
          const message = `worker '${workerId}' has no kv events: ${why}`
          this.#finish({ error: new TransportError('INFERA_FLEET_WORKER_FAILED', workerId, message) })
        },
      })
    })
    signal?.addEventListener('abort', this.#onAbort, { once: true })
    if (signal?.aborted) this.#finish()
  }

  next(): Promise<IteratorResult<KvEventMessage>> {
    if (!this.#hasBegun && !this.#isOver) {
      this.#hasBegun = true
      this.#armLoss()
      for (const reader of this.#readers) if (!this.#isOver) reader.start()
    }
    return this.#queue.next()
  }

  return(): Promise<IteratorResult<KvEventMessage>> {
    this.#finish()
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Ends the iteration, without an error. */
  close(): void {
    this.#finish()
  }

  #armLoss(): void {
    const { clock, lostAfterMs } = this.#options
    this.#lossTimer?.cancel()
    this.#lossTimer = clock.setTimer(lostAfterMs, () => this.#finish({ isLost: true }))
  }

  #finish(end: { readonly error?: TransportError; readonly isLost?: boolean } = {}): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#options.signal?.removeEventListener('abort', this.#onAbort)
    this.#lossTimer?.cancel()
    for (const reader of this.#readers) reader.close()
    this.#queue.end(end.error)
    this.#options.onEnd(end.isLost === true)
  }
}
