import type { KvEventBatch, KvEventSource } from '@infera/fleet'
import type { BlockPool, PoolListener } from '../cache/block-pool.js'
import { type CacheEvent, encodeBatch } from './kv-event-codec.js'
import { snapshotPayloads } from './snapshot.js'

export interface KvEventLogOptions {
  readonly blockSizeTokens: number
  readonly snapshotPayloadBytesMax: number
  /** Wall clock, ms. */
  readonly wallClock: () => number
}

const rank = 0

/**
 * Collects what happens to the prefix cache and publishes it as numbered batches. `publish` is called before control
 * returns to the event loop, so that a snapshot, which others can only take in between, always agrees with the batches.
 */
export class KvEventLog implements PoolListener, KvEventSource {
  readonly ranks: readonly number[] = [rank]
  readonly #options: KvEventLogOptions
  readonly #listeners = new Set<(batch: KvEventBatch) => void>()
  #pending: CacheEvent[] = []
  #sequence = -1
  #pool: BlockPool | undefined

  constructor(options: KvEventLogOptions) {
    this.#options = options
  }

  /** The pool to take snapshots of; it reports to this log. */
  attach(pool: BlockPool): void {
    this.#pool = pool
  }

  blockStored(hash: bigint, parent: bigint | undefined, tokens: Uint32Array): void {
    const last = this.#pending.at(-1)
    const isContinued = last?.type === 'stored' && parent !== undefined && last.hashes.at(-1) === parent
    if (isContinued) {
      last.hashes.push(hash)
      for (const token of tokens) last.tokens.push(token)
    } else {
      this.#pending.push({ type: 'stored', hashes: [hash], parent, tokens: Array.from(tokens) })
    }
  }

  blockRemoved(hash: bigint): void {
    const last = this.#pending.at(-1)
    if (last?.type === 'removed') last.hashes.push(hash)
    else this.#pending.push({ type: 'removed', hashes: [hash] })
  }

  /** Sends out what happened since the last time as one batch; nothing when nothing did. */
  publish(): void {
    if (this.#pending.length === 0) return
    const events = this.#pending
    this.#pending = []
    this.#sequence++
    if (this.#listeners.size === 0) return
    const payload = encodeBatch(events, {
      atSeconds: this.#options.wallClock() / 1000,
      rank,
      blockSizeTokens: this.#options.blockSizeTokens,
    })
    const batch: KvEventBatch = { rank, sequence: this.#sequence, payload }
    for (const listener of [...this.#listeners]) listener(batch)
  }

  /** The cache is copied at the call; payloads are encoded as they are walked, once. */
  snapshot(ofRank: number): { readonly sequence: number; readonly payloads: Iterable<Uint8Array> } {
    if (ofRank !== rank || !this.#pool) return { sequence: -1, payloads: [] }
    const payloads = snapshotPayloads(this.#pool.freeze(), {
      payloadBytesMax: this.#options.snapshotPayloadBytesMax,
      atSeconds: this.#options.wallClock() / 1000,
      rank,
    })
    return { sequence: this.#sequence, payloads }
  }

  subscribe(listener: (batch: KvEventBatch) => void): () => void {
    // A wrapper of its own, so that one function may subscribe twice and each unsubscriber ends its own subscription.
    const own = (batch: KvEventBatch) => listener(batch)
    this.#listeners.add(own)
    return () => {
      this.#listeners.delete(own)
    }
  }
}
