import type { NumberedBatch } from './frames.js'

/** Charged for each held batch on top of its bytes. */
const batchOverheadBytes = 64

/** The newest batches of one rank, an unbroken row, within a count and a number of bytes; the oldest go first. */
export class BatchRing {
  readonly #countMax: number
  readonly #bytesMax: number
  #batches: NumberedBatch[] = []
  #headIndex = 0
  #heldBytes = 0

  constructor(options: { readonly countMax: number; readonly bytesMax: number }) {
    this.#countMax = options.countMax
    this.#bytesMax = options.bytesMax
  }

  get count(): number {
    return this.#batches.length - this.#headIndex
  }

  get heldBytes(): number {
    return this.#heldBytes
  }

  /** The number after the newest batch held; 0 when none is. */
  get nextSequence(): number {
    const newest = this.count > 0 ? this.#batches.at(-1) : undefined
    return newest ? newest.sequence + 1 : 0
  }

  /** A batch that does not follow on the newest one replaces all. */
  push(batch: NumberedBatch): void {
    const newest = this.#batches.at(-1)
    if (newest && this.count > 0 && batch.sequence !== newest.sequence + 1) this.clear()
    this.#batches.push(batch)
    this.#heldBytes += costOf(batch)
    while (this.count > this.#countMax || this.#heldBytes > this.#bytesMax) this.#dropOldest()
  }

  /** The first batch held whose number is at least `sequence`. */
  atLeast(sequence: number): NumberedBatch | undefined {
    const oldest = this.#batches[this.#headIndex]
    if (!oldest) return undefined
    return this.#batches[this.#headIndex + Math.max(0, sequence - oldest.sequence)]
  }

  clear(): void {
    this.#batches = []
    this.#headIndex = 0
    this.#heldBytes = 0
  }

  #dropOldest(): void {
    const oldest = this.#batches[this.#headIndex]
    if (!oldest) return
    this.#headIndex += 1
    this.#heldBytes -= costOf(oldest)
    // Compacts now and then: shifting the array for each batch would cost its whole length every time.
    if (this.#headIndex < 1024 && this.count > 0) return
    this.#batches = this.#batches.slice(this.#headIndex)
    this.#headIndex = 0
  }
}

function costOf(batch: NumberedBatch): number {
  return batch.payload.byteLength + batchOverheadBytes
}
