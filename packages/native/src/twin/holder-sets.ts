// Which holders a block has, in two 32-bit words so that the common case costs no memory beyond its hash slot:
//
//   (id + 1, 0)         one holder
//   (id + 1, id + 1)    two holders
//   (count, -set)       more: a bitset in a pool, numbered from 1
//
// Matching a bitset against the targets still in the race is one AND per 32 targets, however many hold the block.
import { allocateWords, type MemoryLedger } from './memory-ledger.js'

const setCountMin = 64

/** The pool of bitsets. Widths grow with the highest id; freed sets are reused, and the pool empties with its last set. */
export class HolderSets {
  readonly #ledger: MemoryLedger
  #width = 1
  #bits = new Int32Array(0)
  #free: number[] = []
  #nextSet = 1
  #usedSets = 0

  constructor(ledger: MemoryLedger) {
    this.#ledger = ledger
  }

  /** Words per set; ids must be below 32 times this. */
  get width(): number {
    return this.#width
  }

  /** The pool itself, for reading: word `w` of set `s` is at `s * width + w`. Renewed by any change. */
  get bits(): Int32Array {
    return this.#bits
  }

  get sizeBytes(): number {
    return this.#bits.byteLength + this.#free.length * 8
  }

  /** Widens every set until it has a bit for `id`. False, with nothing changed, when there is no memory. */
  reserve(id: number): boolean {
    let width = this.#width
    while (id >= width * 32) width *= 2
    if (width === this.#width) return true
    const setCount = this.#bits.length / this.#width
    if (setCount > 0) {
      const bits = allocateWords(this.#ledger, setCount * width)
      if (bits === undefined) return false
      for (let set = 0; set < setCount; set++)
        bits.set(this.#bits.subarray(set * this.#width, (set + 1) * this.#width), set * width)
      this.#ledger.giveBack(this.#bits.byteLength)
      this.#bits = bits
    }
    this.#width = width
    return true
  }

  /** A new set with no bit set; its number is at least 1. 0 when there is no memory. */
  allocate(): number {
    const reused = this.#free.pop()
    if (reused === undefined && (this.#nextSet + 1) * this.#width > this.#bits.length) {
      const bits = allocateWords(this.#ledger, Math.max(setCountMin * this.#width, this.#bits.length * 2))
      if (bits === undefined) return 0
      bits.set(this.#bits)
      this.#ledger.giveBack(this.#bits.byteLength)
      this.#bits = bits
    }
    this.#usedSets++
    return reused ?? this.#nextSet++
  }

  free(set: number): void {
    this.#bits.fill(0, set * this.#width, (set + 1) * this.#width)
    this.#usedSets--
    if (this.#usedSets > 0) {
      this.#free.push(set)
      return
    }
    this.#ledger.giveBack(this.#bits.byteLength)
    this.#free = []
    this.#nextSet = 1
    this.#bits = new Int32Array(0)
  }

  has(set: number, id: number): boolean {
    return (this.#bits[set * this.#width + (id >>> 5)]! & (1 << (id & 31))) !== 0
  }

  set(set: number, id: number): void {
    const at = set * this.#width + (id >>> 5)
    this.#bits[at] = this.#bits[at]! | (1 << (id & 31))
  }

  unset(set: number, id: number): void {
    const at = set * this.#width + (id >>> 5)
    this.#bits[at] = this.#bits[at]! & ~(1 << (id & 31))
  }

  /** The lowest id of a set that is not empty. */
  lowest(set: number): number {
    let word = 0
    while (this.#bits[set * this.#width + word] === 0) word++
    return word * 32 + lowestBit(this.#bits[set * this.#width + word]!)
  }
}

/** Position of the lowest set bit of a word that is not 0. */
export function lowestBit(word: number): number {
  return 31 - Math.clz32(word & -word)
}

/** 1 when the bit of `id` is set, else 0. */
export function bitAt(words: Int32Array, id: number): number {
  return (words[id >>> 5]! >>> (id & 31)) & 1
}
