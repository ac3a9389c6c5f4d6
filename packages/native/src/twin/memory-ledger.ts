/**
 * Counts the bytes of an index and its views against one bound, as near as JavaScript can know them: typed arrays
 * exactly, the entries of maps by an estimate, and what the engine adds to either not at all.
 */
export class MemoryLedger {
  readonly bytesMax: number
  #usedBytes = 0

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax
  }

  get usedBytes(): number {
    return this.#usedBytes
  }

  /** False, with nothing taken, when the bound would be passed. */
  tryTake(bytes: number): boolean {
    if (this.#usedBytes + bytes > this.bytesMax) return false
    this.#usedBytes += bytes
    return true
  }

  giveBack(bytes: number): void {
    this.#usedBytes -= bytes
  }
}

/** An array that the ledger has room for, all zero; undefined when it has none, or the machine has none. */
export function allocateWords(ledger: MemoryLedger, words: number): Int32Array<ArrayBuffer> | undefined {
  if (!ledger.tryTake(words * Int32Array.BYTES_PER_ELEMENT)) return undefined
  try {
    return new Int32Array(words)
  } catch (error) {
    ledger.giveBack(words * Int32Array.BYTES_PER_ELEMENT)
    if (error instanceof RangeError) return undefined
    throw error
  }
}
