// Open addressing over one Int32Array: a slot is four words, { keyFirst, keySecond, valueFirst, valueSecond }, so a probe
// touches one cache line. The two key words are the halves of a 64-bit hash in the host's own order; all callers split
// hashes through typed-array views of one kind, so the order never matters. A slot whose key is all zero is empty; the
// real key zero lives in one slot behind the table, outside every probe sequence.
import { allocateWords, type MemoryLedger } from './memory-ledger.js'

const wordsPerSlot = 4
const capacityMin = 16

/** What a table without entries reads: one free slot and that of the key zero. Shared by all, written by none. */
const noWords = new Int32Array(2 * wordsPerSlot)

/**
 * Hash table from 64 bits to 64 bits without an object per entry. Deletion shifts the cluster back, so there are no
 * tombstones and the cost of a probe does not grow with churn. Slot numbers hold until the next `insert` or `delete`.
 * Without entries it takes no memory.
 */
export class U64Table {
  readonly #ledger: MemoryLedger
  #words = noWords
  #mask = 0
  #size = 0
  #hasZero = false

  constructor(ledger: MemoryLedger) {
    this.#ledger = ledger
  }

  /** Entries in the table. */
  get size(): number {
    return this.#size + (this.#hasZero ? 1 : 0)
  }

  /** Slots that may be occupied, numbered from 0; the last is that of the key zero. */
  get slotCount(): number {
    return this.#mask + 2
  }

  get sizeBytes(): number {
    return this.#words === noWords ? 0 : this.#words.byteLength
  }

  /** Slot of the key, or -1. */
  find(first: number, second: number): number {
    const words = this.#words
    const mask = this.#mask
    if ((first | second) === 0) return this.#hasZero ? mask + 1 : -1
    let slot = home(first, second) & mask
    for (;;) {
      const at = slot * wordsPerSlot
      const keyFirst = words[at]!
      const keySecond = words[at + 1]!
      if (keyFirst === first && keySecond === second) return slot
      if ((keyFirst | keySecond) === 0) return -1
      slot = (slot + 1) & mask
    }
  }

  /** Adds a key that `find` did not find, with both values 0. Returns its slot, or -1 when there is no memory to grow. */
  insert(first: number, second: number): number {
    if ((first | second) === 0) {
      if (this.#words === noWords && !this.#rehash(capacityMin)) return -1
      this.#hasZero = true
      return this.#mask + 1
    }
    // Load stays at or under 3/4: above it, clusters of linear probing grow long.
    if ((this.#size + 1) * 4 > (this.#mask + 1) * 3) {
      if (!this.#rehash(Math.max(capacityMin, (this.#mask + 1) * 2))) return -1
    }
    this.#size++
    return place(this.#words, this.#mask, first, second)
  }

  /** Whether the slot holds an entry. */
  isOccupied(slot: number): boolean {
    if (slot > this.#mask) return this.#hasZero
    return (this.#words[slot * wordsPerSlot]! | this.#words[slot * wordsPerSlot + 1]!) !== 0
  }

  /** Key of an occupied slot. */
  keyFirst(slot: number): number {
    return this.#words[slot * wordsPerSlot]!
  }

  keySecond(slot: number): number {
    return this.#words[slot * wordsPerSlot + 1]!
  }

  valueFirst(slot: number): number {
    return this.#words[slot * wordsPerSlot + 2]!
  }

  valueSecond(slot: number): number {
    return this.#words[slot * wordsPerSlot + 3]!
  }

  /** Sets the value of an occupied slot; both are kept as 32-bit signed integers. */
  setValue(slot: number, first: number, second: number): void {
    this.#words[slot * wordsPerSlot + 2] = first
    this.#words[slot * wordsPerSlot + 3] = second
  }

  /** Empties an occupied slot. Entries of the same cluster may move into it. */
  delete(slot: number): void {
    const words = this.#words
    const mask = this.#mask
    if (slot > mask) {
      this.#hasZero = false
      this.setValue(slot, 0, 0)
      return
    }
    this.#size--
    let hole = slot
    let next = slot
    for (;;) {
      next = (next + 1) & mask
      const from = next * wordsPerSlot
      if ((words[from]! | words[from + 1]!) === 0) break
      // An entry may fill the hole unless its home lies cyclically behind the hole: then a probe would miss it.
      const wanted = home(words[from]!, words[from + 1]!) & mask
      if (((next - wanted) & mask) < ((next - hole) & mask)) continue
      words.copyWithin(hole * wordsPerSlot, from, from + wordsPerSlot)
      hole = next
    }
    words.fill(0, hole * wordsPerSlot, (hole + 1) * wordsPerSlot)
  }

  /** Gives memory back once the table is at most an eighth full, if there is room for both meanwhile. Slot numbers change. */
  shrink(): void {
    if (this.size === 0) {
      this.clear()
      return
    }
    let capacity = this.#mask + 1
    while (capacity > capacityMin && this.#size * 8 <= capacity) capacity /= 2
    if (capacity <= this.#mask) this.#rehash(capacity)
  }

  /** Drops every entry and the memory behind it. */
  clear(): void {
    this.#ledger.giveBack(this.sizeBytes)
    this.#words = noWords
    this.#mask = 0
    this.#size = 0
    this.#hasZero = false
  }

  /** False, with nothing changed, when there is no memory. */
  #rehash(capacity: number): boolean {
    const words = allocateWords(this.#ledger, (capacity + 1) * wordsPerSlot)
    if (words === undefined) return false
    const old = this.#words
    const oldCapacity = this.#mask + 1
    const mask = capacity - 1
    for (let at = 0; at < oldCapacity * wordsPerSlot; at += wordsPerSlot) {
      if ((old[at]! | old[at + 1]!) === 0) continue
      const to = place(words, mask, old[at]!, old[at + 1]!) * wordsPerSlot
      words[to + 2] = old[at + 2]!
      words[to + 3] = old[at + 3]!
    }
    const zero = oldCapacity * wordsPerSlot
    words[capacity * wordsPerSlot + 2] = old[zero + 2]!
    words[capacity * wordsPerSlot + 3] = old[zero + 3]!
    this.#ledger.giveBack(this.sizeBytes)
    this.#words = words
    this.#mask = mask
    return true
  }
}

/** Puts a new key into the first free slot of its probe sequence. */
function place(words: Int32Array, mask: number, first: number, second: number): number {
  let slot = home(first, second) & mask
  while ((words[slot * wordsPerSlot]! | words[slot * wordsPerSlot + 1]!) !== 0) slot = (slot + 1) & mask
  words[slot * wordsPerSlot] = first
  words[slot * wordsPerSlot + 1] = second
  return slot
}

/** Where a probe begins. Engine hashes can be small consecutive integers, so the bits are mixed first. */
function home(first: number, second: number): number {
  let mixed = first ^ Math.imul(second, 0x9e3779b1)
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x85ebca77)
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae3d)
  return mixed ^ (mixed >>> 16)
}
