import type { KvEventBatch, KvEventSource } from '../ports/kv-events.js'
import type { KvOutgoing } from './kv-parts.js'

/** Charged for each held batch on top of its bytes. */
const batchOverheadBytes = 64

/**
 * The worker's end of one event subscription: what to send next, for one rank. A snapshot is taken at the moment it is asked
 * for, in the same turn as batches are listened to, so that none falls between the two and none comes twice. Where more
 * batches wait than the bound allows, or one is larger than a batch may be, a new snapshot takes their place.
 */
export class KvFeed {
  readonly #source: KvEventSource
  readonly #rank: number
  readonly #bufferBytesMax: number
  readonly #batchBytesMax: number
  readonly #onReady: () => void
  readonly #unsubscribe: () => void
  #waiting: KvEventBatch[] = []
  #waitingBytes = 0
  #owesSnapshot = true

  /**
   * @param options.bufferBytesMax most bytes of batches that wait
   * @param options.batchBytesMax largest batch that can be sent as such
   * @param options.onReady called whenever there is something to take
   */
  constructor(
    source: KvEventSource,
    rank: number,
    options: { bufferBytesMax: number; batchBytesMax: number; onReady: () => void },
  ) {
    this.#source = source
    this.#rank = rank
    this.#bufferBytesMax = options.bufferBytesMax
    this.#batchBytesMax = options.batchBytesMax
    this.#onReady = options.onReady
    this.#unsubscribe = source.subscribe((batch) => this.#offer(batch))
  }

  /** The next message for the server; undefined when there is none now. */
  take(): KvOutgoing | undefined {
    if (this.#owesSnapshot) {
      this.#owesSnapshot = false
      const { sequence, payloads } = this.#source.snapshot(this.#rank)
      return { type: 'snapshot', sequence, payloads }
    }
    const batch = this.#waiting.shift()
    if (!batch) return undefined
    this.#waitingBytes -= batch.payload.byteLength + batchOverheadBytes
    return { type: 'batch', sequence: batch.sequence, payload: batch.payload }
  }

  close(): void {
    this.#unsubscribe()
    this.#waiting = []
  }

  #offer(batch: KvEventBatch): void {
    if (batch.rank !== this.#rank) return
    // The snapshot that is owed will contain it.
    if (this.#owesSnapshot) return
    const sizeBytes = batch.payload.byteLength + batchOverheadBytes
    if (
      this.#waitingBytes + sizeBytes > this.#bufferBytesMax ||
      batch.payload.byteLength > this.#batchBytesMax
    ) {
      this.#waiting = []
      this.#waitingBytes = 0
      this.#owesSnapshot = true
    } else {
      this.#waiting.push(batch)
      this.#waitingBytes += sizeBytes
    }
    this.#onReady()
  }
}
