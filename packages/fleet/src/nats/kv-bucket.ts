import { type KV, Kvm } from '@nats-io/kv'
import type { Clock, Timer } from '../ports/clock.js'
import type { Logger } from '../ports/logger.js'
import type { NatsBroker } from './broker.js'
import { kvBucketKey, kvBucketName } from './names.js'

/**
 * Keeps the view of a worker's cache that other front ends start from, and writes it as the reference does: a msgpack array of the
 * router's block hashes (u64), ascending. Events are opaque here, so whoever knows hashing passes it in.
 */
export interface KvViewCodec {
  /** The rank's cache is empty. */
  clear(rank: number): void
  /** The engine's own batch of events. Must not throw for what it cannot read. */
  apply(rank: number, payload: Uint8Array): void
  encode(rank: number): Uint8Array
}

export interface KvBucketOptions {
  readonly workerId: string
  readonly ranks: readonly number[]
  readonly codec: KvViewCodec
  readonly broker: NatsBroker
  /** Least time between two writes of one rank. */
  readonly writeIntervalMs: number
  readonly clock: Clock
  readonly logger: Logger
}

/** Writes each rank's view into the bucket: at most once in an interval, and the last change always. */
export class KvBucket {
  readonly #options: KvBucketOptions
  readonly #dirty = new Set<number>()
  #timer: Timer | undefined
  #writing: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor(options: KvBucketOptions) {
    this.#options = options
  }

  /** @param payload undefined: the cache begins anew */
  apply(rank: number, payload: Uint8Array | undefined): void {
    const { codec } = this.#options
    if (payload) codec.apply(rank, payload)
    else codec.clear(rank)
    this.#dirty.add(rank)
    this.#arm()
  }

  #arm(): void {
    const { clock, writeIntervalMs } = this.#options
    if (this.#isClosed) return
    this.#timer ??= clock.setTimer(writeIntervalMs, () => {
      this.#timer = undefined
      this.#writing = this.#writing.then(() => this.#writeDirty())
    })
  }

  /** Writes every rank a last time, as the reference does. */
  async close(): Promise<void> {
    this.#end()
    for (const rank of this.#options.ranks) this.#dirty.add(rank)
    await this.#writing
    await this.#writeDirty()
  }

  /** Takes the keys away: front ends drop what they had from them. */
  async deleteKeys(): Promise<void> {
    this.#end()
    await this.#writing
    const { ranks, workerId } = this.#options
    await this.#use(async (bucket) => {
      for (const rank of ranks) await bucket.delete(kvBucketKey(workerId, rank))
    })
  }

  #end(): void {
    this.#isClosed = true
    this.#timer?.cancel()
    this.#timer = undefined
  }

  async #writeDirty(): Promise<void> {
    const { workerId, codec } = this.#options
    const ranks = [...this.#dirty]
    this.#dirty.clear()
    const isWritten = await this.#use(async (bucket) => {
      for (const rank of ranks) await bucket.put(kvBucketKey(workerId, rank), codec.encode(rank))
    })
    if (isWritten) return
    for (const rank of ranks) this.#dirty.add(rank)
    this.#arm()
  }

  /** The bucket is a help for those who start, never a need: what cannot be written is logged. */
  async #use(work: (bucket: KV) => Promise<void>): Promise<boolean> {
    const { broker, workerId, logger } = this.#options
    const connection = broker.connection
    if (!connection) return false
    try {
      await work(await new Kvm(connection).create(kvBucketName))
      return true
    } catch (error) {
      const fields = { workerId, error: error instanceof Error ? error.message : String(error) }
      logger.warn(fields, 'the view of this worker could not be written')
      return false
    }
  }
}
