import type { WorkerRecord } from '../records/worker-record.js'

/**
 * What a subscriber sees of one worker, in order per rank. Payloads are the engine's own msgpack batches, opaque here.
 * A snapshot replaces everything known of its rank: applying its payloads in order rebuilds the cache as it was just
 * after batch number `sequence`; the next batch has `sequence + 1`. It comes first, and again after any loss.
 */
export type KvEventMessage =
  | {
      readonly type: 'snapshot'
      readonly rank: number
      readonly sequence: number
      readonly payloads: readonly Uint8Array[]
    }
  | { readonly type: 'batch'; readonly rank: number; readonly sequence: number; readonly payload: Uint8Array }

/**
 * As a snapshot, of a rank of which only the router's own block hashes are known, ascending. They have no names, so that no batch
 * could take one away: whatever comes next for this rank replaces them, a batch too.
 */
export interface KvViewMessage {
  readonly type: 'view'
  readonly rank: number
  readonly sequence: number
  readonly hashes: BigUint64Array
}

/** Carries KV events from workers to routers. Implemented by link. */
export interface KvEventTransport {
  readonly kind: string
  /** Whether this transport can bring events of that worker at all. */
  serves(worker: WorkerRecord): boolean
  /**
   * Subscribes until `break`, the signal, or the loss of the worker, which all end the iteration without throwing.
   * A consumer that falls behind a stated bound gets a fresh snapshot instead of the batches it missed.
   */
  subscribe(
    worker: WorkerRecord,
    options?: { signal?: AbortSignal },
  ): AsyncIterable<KvEventMessage | KvViewMessage>
}

/** The worker's side: an engine's stream of cache events, one numbering per rank from 0 (the first batch). */
export interface KvEventSource {
  /** Ranks of this engine, usually `[0]`. */
  readonly ranks: readonly number[]
  /**
   * The cache as it is in this turn. `sequence` is that of the newest batch already published, -1 before the first.
   * `payloads` is walked once, over many turns, as the wire has room, and left early when nobody wants it any more: what it
   * yields describes the cache as of the call, whatever happened since, and is better produced on the way than beforehand.
   */
  snapshot(rank: number): { readonly sequence: number; readonly payloads: Iterable<Uint8Array> }
  /** Calls back for every later batch, in order, synchronously. Returns the unsubscriber. */
  subscribe(listener: (batch: KvEventBatch) => void): () => void
}

export interface KvEventBatch {
  readonly rank: number
  readonly sequence: number
  readonly payload: Uint8Array
}

/** What a worker says of its load; counts >= 0, ratio 0..1. */
export interface LoadReport {
  readonly runningRequests: number
  readonly waitingRequests: number
  readonly kvUsageRatio: number
}
