import type { KvEventMessage, KvEventTransport, Logger, WorkerRecord } from '@infera/fleet'
import type { CacheView } from '../cache/cache-view.js'
import type { KvEventCounts } from '../cache/event-counters.js'
import { decodeKvBatch } from '../cache/kv-event-decoder.js'
import { Backoff, type BackoffOptions } from './backoff.js'

/** Unreadable payloads in a row after which a worker's view is called degraded. */
const failuresUntilDegraded = 3

/**
 * What the router knows of a worker's cache: `live` follows its events; `waiting` has subscribed and got nothing yet;
 * `degraded` cannot read them; `no-block-size` and `no-event-source` say why there is nothing to follow.
 */
export type CacheState = 'live' | 'waiting' | 'degraded' | 'no-block-size' | 'no-event-source'

export interface KvFollowerOptions {
  readonly record: WorkerRecord
  readonly transport: KvEventTransport
  /** By rank. */
  readonly views: ReadonlyMap<number, CacheView>
  readonly counts: KvEventCounts
  readonly backoff: BackoffOptions
  readonly logger: Logger
}

/** Keeps the views of one worker up with its events, for as long as it is not stopped. */
export class KvFollower {
  readonly #options: KvFollowerOptions
  readonly #stopping = new AbortController()
  /** Number of the last batch applied, by rank. */
  readonly #sequences = new Map<number, number>()
  readonly #running: Promise<void>
  #state: 'live' | 'waiting' = 'waiting'
  #failureCount = 0
  #hasWarned = false

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
    return this.#running
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping
    const { transport, record, logger } = this.#options
    const backoff = new Backoff(this.#options.backoff)
    while (!signal.aborted) {
      try {
        for await (const message of transport.subscribe(record, { signal })) {
          // A message that was under way when the worker was replaced belongs to nobody.
          if (signal.aborted) return
          backoff.reset()
          // After a gap only a fresh snapshot tells the truth; leaving the loop and coming back brings one.
          if (!this.#apply(message)) break
        }
      } catch (error) {
        if (signal.aborted) return
        logger.warn(
          { workerId: record.worker_id, error: error instanceof Error ? error.message : String(error) },
          'the subscription to KV events broke; it is opened again',
        )
      }
      this.#state = 'waiting'
      try {
        await backoff.wait(signal)
      } catch {
        return // the wait ends early only because the follower is stopped
      }
    }
  }

  /** @returns false when batches are missing */
  #apply(message: KvEventMessage): boolean {
    const { counts } = this.#options
    const view = this.#options.views.get(message.rank)
    if (!view) {
      counts.unknownRanks += 1
      return true
    }
    this.#state = 'live'
    if (message.type === 'snapshot') {
      counts.snapshots += 1
      view.clear()
      for (const payload of message.payloads) this.#applyPayload(view, payload)
      this.#sequences.set(message.rank, message.sequence)
      return true
    }
    const last = this.#sequences.get(message.rank)
    if (last !== undefined && message.sequence <= last) {
      counts.duplicateBatches += 1
      return true
    }
    if (last !== undefined && message.sequence > last + 1) {
      counts.gaps += 1
      view.clear()
      this.#sequences.delete(message.rank)
      return false
    }
    this.#sequences.set(message.rank, message.sequence)
    counts.batches += 1
    this.#applyPayload(view, message.payload)
    return true
  }

  #applyPayload(view: CacheView, payload: Uint8Array): void {
    const { counts, logger, record } = this.#options
    const batch = decodeKvBatch(payload)
    counts.unknownTags += batch.unknownTagCount
    counts.badEvents += batch.badEventCount
    if (!batch.isMalformed) {
      this.#failureCount = 0
      view.apply(batch.events)
      return
    }
    counts.malformedBatches += 1
    this.#failureCount += 1
    if (this.#failureCount < failuresUntilDegraded || this.#hasWarned) return
    this.#hasWarned = true
    logger.warn(
      { workerId: record.worker_id, failures: this.#failureCount },
      'KV events of a worker cannot be read: it is routed to without knowledge of its cache',
    )
  }
}
