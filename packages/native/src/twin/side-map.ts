import type { MemoryLedger } from './memory-ledger.js'

/** What V8 takes for an entry with a bigint key, rounded up; its tables grow by doubling, which this does not follow. */
export const bytesPerEntry = 64
/** A Map throws at 2^24 entries. */
const entriesMax = 2 ** 23

/** A map from hashes to small numbers for what is rare. Refuses beyond the ledger's bound and beyond 2^23 entries. */
export class SideMap {
  readonly #ledger: MemoryLedger
  readonly #values = new Map<bigint, number>()

  constructor(ledger: MemoryLedger) {
    this.#ledger = ledger
  }

  get size(): number {
    return this.#values.size
  }

  get sizeBytes(): number {
    return this.#values.size * bytesPerEntry
  }

  get(hash: bigint): number | undefined {
    return this.#values.get(hash)
  }

  entries(): IterableIterator<[bigint, number]> {
    return this.#values.entries()
  }

  /** False, with nothing changed, when there is no room for one more. */
  set(hash: bigint, value: number): boolean {
    if (!this.#values.has(hash)) {
      if (this.#values.size >= entriesMax || !this.#ledger.tryTake(bytesPerEntry)) return false
    }
    this.#values.set(hash, value)
    return true
  }

  delete(hash: bigint): boolean {
    const isHere = this.#values.delete(hash)
    if (isHere) this.#ledger.giveBack(bytesPerEntry)
    return isHere
  }

  clear(): void {
    this.#ledger.giveBack(this.sizeBytes)
    this.#values.clear()
  }
}
