import type { KvEventMessage, KvEventTransport, KvViewMessage, Logger, WorkerRecord } from '@infera/fleet'
import { type CacheView, type PrefixIndex, tiers } from '@infera/native'
import type { KvEventCounts } from '../cache/kv-event-counts.js'
import { Backoff, type BackoffOptions } from './backoff.js'

/** Unreadable batches in a row after which a worker's view is called degraded. */
const failuresUntilDegraded = 3
/**
 * Bytes of payloads applied before requests get their turn. A block of 16 tokens takes some 80 bytes and 1 to 2 microseconds, so
 * a slice holds the loop for about 5 ms. Finding the events of one payload is not sliced: 4 ms per MiB of it, which is why
 * whoever makes snapshots makes them of many payloads.
 */
const sliceBytes = 256 * 1024

/**
 * What the router knows of a worker's cache: `live` follows its events; `waiting` has subscribed and has no whole snapshot yet;
 * `degraded` cannot read them; `no-block-size`, `no-event-source` and `no-room` (in the index) say why there is nothing to follow.
 */
export type CacheState = 'live' | 'waiting' | 'degraded' | 'no-block-size' | 'no-event-source' | 'no-room'

export interface KvFollowerOptions {
  readonly record: WorkerRecord
  readonly transport: KvEventTransport
  readonly index: PrefixIndex
  /** By rank. */
  readonly views: ReadonlyMap<number, CacheView>
  readonly counts: KvEventCounts
  readonly backoff: BackoffOptions
  readonly logger: Logger
  /** Called when `state` is another one; not any more once the follower is stopped. */
  readonly onState?: (state: CacheState, previous: CacheState) => void
}

/**
 * Keeps the views of one worker up with its events, for as long as it is not stopped.
 *
 * What is long is applied in slices, between which requests are served. While a snapshot is being applied they see the part of
 * it that was applied, and nothing of what it replaces: a view then knows too little, and never what is not so. Events
 * that follow wait for its end.
 */
export class KvFollower {
  readonly #options: KvFollowerOptions
  readonly #stopping = new AbortController()
  /** Number of the last batch applied, by rank. */
  readonly #sequences = new Map<number, number>()
  /** Ranks of which only block hashes are known. */
  readonly #nameless = new Set<number>()
  /** Ranks with unreadable batches since their last snapshot, of a worker whose every batch seems to be such. */
  readonly #unreadable = new Set<number>()
  readonly #running: Promise<void>
  /** Ends the subscription of now. */
  #subscription = new AbortController()
  #state: 'live' | 'waiting' = 'waiting'
  #told: CacheState = 'waiting'
  #failureCount = 0
  #hasWarned = false
  #sliceBytes = 0

  constructor(options: KvFollowerOptions) {
    this.#options = options
    this.#running = this.#run()
  }

  get state(): CacheState {
    return this.#failureCount >= failuresUntilDegraded ? 'degraded' : this.#state
  }

  /** Unsubscribes; resolves once nothing is applied any more. */
  stop(): Promise<void> {
    this.#stopping.abort()
    this.#subscription.abort()
    return this.#running
  }

  /** Subscribes anew, which brings whole views. Until they are there the old ones stay. */
  refresh(): void {
    this.#subscription.abort()
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping
    const { transport, record, logger } = this.#options
    const backoff = new Backoff(this.#options.backoff)
    while (!signal.aborted) {
      const subscription = new AbortController()
      this.#subscription = subscription
      try {
        for await (const message of transport.subscribe(record, { signal: subscription.signal })) {
          // A message that was under way when the worker was replaced belongs to nobody.
          if (signal.aborted) return
          if (subscription.signal.aborted) break
          backoff.reset()
          // After a gap only a fresh snapshot tells the truth; leaving the loop and coming back brings one.
          const isWhole = await this.#apply(message)
          if (!isWhole) this.#state = 'waiting'
          this.#tell()
          if (!isWhole) break
        }
      } catch (error) {
        if (signal.aborted) return
        if (!subscription.signal.aborted) {
          logger.warn(
            { workerId: record.worker_id, error: error instanceof Error ? error.message : String(error) },
            'the subscription to KV events broke; it is opened again',
          )
        }
      }
      this.#state = 'waiting'
      this.#tell()
      try {
        await backoff.wait(signal)
      } catch {
        return // the wait ends early only because the follower is stopped
      }
    }
  }

  /** @returns false when batches are missing */
  async #apply(message: KvEventMessage | KvViewMessage): Promise<boolean> {
    const { counts } = this.#options
    const { rank, sequence } = message
    const view = this.#options.views.get(rank)
    if (!view) {
      counts.unknownRanks += 1
      return true
    }
    // Blocks without names could never be taken away, so that they do not outlive what is said next.
    if (this.#nameless.delete(rank)) view.clear()
    if (message.type === 'view') {
      counts.snapshots += 1
      view.clear()
      this.#options.index.retain(view.target, tiers.device, message.hashes)
      this.#nameless.add(rank)
      this.#sequences.set(rank, sequence)
      this.#unreadable.delete(rank)
      this.#state = 'live'
      return true
    }
    if (message.type === 'snapshot') {
      counts.snapshots += 1
      this.#state = 'waiting'
      this.#sequences.delete(rank)
      this.#unreadable.delete(rank)
      view.clear()
      for (const payload of message.payloads) {
        if (!(await this.#applyPayload(view, payload))) this.#failed()
        if (this.#stopping.signal.aborted) return true
      }
      this.#sequences.set(rank, sequence)
      this.#state = 'live'
      return true
    }
    this.#state = 'live'
    const last = this.#sequences.get(rank)
    if (last !== undefined && sequence <= last) {
      counts.duplicateBatches += 1
      return true
    }
    if (last !== undefined && sequence > last + 1) {
      counts.gaps += 1
      view.clear()
      this.#sequences.delete(rank)
      return false
    }
    this.#sequences.set(rank, sequence)
    const isReadable = await this.#applyPayload(view, message.payload)
    if (!isReadable) {
      // What it said is as lost as a batch that never came.
      this.#failed()
      view.clear()
      this.#sequences.delete(rank)
      // A snapshot for each of them would help nobody, so that from here on only a readable one asks for it.
      if (this.state === 'degraded') this.#unreadable.add(rank)
      return this.state === 'degraded'
    }
    this.#failureCount = 0
    if (!this.#unreadable.delete(rank)) return true
    view.clear()
    this.#sequences.delete(rank)
    return false
  }

  /** @returns false when it cannot be read; the view is as it was then */
  async #applyPayload(view: CacheView, payload: Uint8Array): Promise<boolean> {
    const { counts } = this.#options
    const malformedBefore = counts.malformedBatches
    view.apply(payload, counts)
    await this.#pace(payload.length)
    return counts.malformedBatches === malformedBefore
  }

  #failed(): void {
    const { logger, record } = this.#options
    this.#failureCount += 1
    if (this.#failureCount < failuresUntilDegraded || this.#hasWarned) return
    this.#hasWarned = true
    logger.warn(
      { workerId: record.worker_id, failures: this.#failureCount },
      'KV events of a worker cannot be read: it is routed to without knowledge of its cache',
    )
  }

  /** Lets requests have their turn after each slice; many short payloads that wait in line add up to one. */
  async #pace(sizeBytes: number): Promise<void> {
    this.#sliceBytes += sizeBytes
    if (this.#sliceBytes < sliceBytes) return
    this.#sliceBytes = 0
    this.#tell()
    await new Promise((resolve) => setImmediate(resolve))
  }

  #tell(): void {
    const { state } = this
    const previous = this.#told
    // Of a worker that is gone nothing is told, least of all that its events have ended.
    if (state === previous || this.#stopping.signal.aborted) return
    this.#told = state
    this.#options.onState?.(state, previous)
  }
}
