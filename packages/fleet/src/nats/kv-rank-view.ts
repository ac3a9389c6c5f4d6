import type { KvEventMessage, KvViewMessage } from '../ports/kv-events.js'
import { decodeKvEpoch } from './kv-epoch.js'

/** What came of one message of the stream. */
export type KvRankResult =
  | { readonly type: 'message'; readonly message: KvEventMessage }
  | { readonly type: 'nothing' }
  | { readonly type: 'tooLarge' }

type Phase = 'waiting' | 'assembling' | 'live'

/**
 * The front end's order of one rank's messages: from what the stream holds to a snapshot and its batches. Where the relay is one
 * of the reference there are no markers, and a view begins empty with the oldest message.
 */
export class KvRankView {
  readonly rank: number
  readonly #snapshotBytesMax: number
  #phase: Phase = 'waiting'
  #sequence = -1
  #expected = 0
  #parts: Uint8Array[] = []
  #partsBytes = 0

  constructor(rank: number, snapshotBytesMax: number) {
    this.rank = rank
    this.#snapshotBytesMax = snapshotBytesMax
  }

  /** Whether nothing can be made of batches before the next marker. */
  get isWaiting(): boolean {
    return this.#phase === 'waiting'
  }

  /** What another source says that the rank holds, while the stream has said nothing of it; undefined once it has. */
  standIn(hashes: BigUint64Array): KvViewMessage | undefined {
    if (this.#phase !== 'live' || this.#sequence >= 0) return undefined
    return { type: 'view', rank: this.rank, sequence: -1, hashes }
  }

  /** Only a marker helps from here on. */
  wait(): void {
    this.#phase = 'waiting'
    this.#parts = []
    this.#partsBytes = 0
  }

  /** The cache is taken for empty, and every message for a batch. */
  beginEmpty(): KvEventMessage {
    this.#phase = 'live'
    this.#sequence = -1
    this.#parts = []
    return { type: 'snapshot', rank: this.rank, sequence: -1, payloads: [] }
  }

  accept(payload: Uint8Array): KvRankResult {
    const epoch = decodeKvEpoch(payload)
    if (epoch) {
      this.#phase = 'assembling'
      this.#sequence = epoch.sequence
      this.#expected = epoch.count
      this.#parts = []
      this.#partsBytes = 0
      return this.#completed()
    }
    if (this.#phase === 'waiting') return { type: 'nothing' }
    if (this.#phase === 'assembling') {
      this.#parts.push(payload)
      this.#partsBytes += payload.byteLength
      if (this.#partsBytes > this.#snapshotBytesMax) return { type: 'tooLarge' }
      return this.#completed()
    }
    this.#sequence += 1
    const { rank } = this
    return { type: 'message', message: { type: 'batch', rank, sequence: this.#sequence, payload } }
  }

  /** The batch of the last `accept` was not taken: it will come again. */
  takeBack(): void {
    this.#sequence -= 1
  }

  #completed(): KvRankResult {
    if (this.#parts.length < this.#expected) return { type: 'nothing' }
    const payloads = this.#parts
    this.#parts = []
    this.#partsBytes = 0
    this.#phase = 'live'
    const { rank } = this
    return { type: 'message', message: { type: 'snapshot', rank, sequence: this.#sequence, payloads } }
  }
}
