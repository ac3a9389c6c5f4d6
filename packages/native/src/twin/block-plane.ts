// Which holders have which blocks in one tier. Sub-tables by the top byte of the hash: one growing by rehash stops the
// loop for a 256th of the whole. Invariant: a holder is in a slot at most once; a slot without holders is not occupied.
import { bitAt, type HolderSets, lowestBit } from './holder-sets.js'
import type { MemoryLedger } from './memory-ledger.js'
import { U64Table } from './u64-table.js'

export const tablesPerPlane = 256
const none = -1

export type Added = 'new' | 'present' | 'noMemory'

/** Hashes come as the halves of a typed-array view on them. */
export class BlockPlane {
  readonly #sets: HolderSets
  readonly #tables: readonly U64Table[]
  #blockCount = 0

  /** @param sets may serve other planes too */
  constructor(ledger: MemoryLedger, sets: HolderSets) {
    this.#sets = sets
    this.#tables = Array.from({ length: tablesPerPlane }, () => new U64Table(ledger))
  }

  /** Distinct blocks with any holder, a dead one included. */
  get blockCount(): number {
    return this.#blockCount
  }

  get sizeBytes(): number {
    return this.#tables.reduce((sum, table) => sum + table.sizeBytes, 0)
  }

  /** The sub-table in which a hash with this second half lies. */
  tableOf(second: number): U64Table {
    return this.#tables[second >>> 24]!
  }

  table(number: number): U64Table {
    return this.#tables[number]!
  }

  has(first: number, second: number, holder: number): boolean {
    const table = this.tableOf(second)
    const slot = table.find(first, second)
    return slot !== none && this.#isHeld(table, slot, holder)
  }

  add(first: number, second: number, holder: number): Added {
    const table = this.tableOf(second)
    const slot = table.find(first, second)
    if (slot === none) {
      const made = table.insert(first, second)
      if (made === none) return 'noMemory'
      table.setValue(made, holder + 1, 0)
      this.#blockCount++
      return 'new'
    }
    if (this.#isHeld(table, slot, holder)) return 'present'
    return this.#join(table, slot, holder) ? 'new' : 'noMemory'
  }

  /** False when the holder did not have the block. */
  remove(first: number, second: number, holder: number): boolean {
    const table = this.tableOf(second)
    const slot = table.find(first, second)
    if (slot === none || !this.#isHeld(table, slot, holder)) return false
    if (this.#leave(table, slot, holder)) table.shrink()
    return true
  }

  /** Sets the bits of all holders of a block. */
  collect(first: number, second: number, into: Int32Array): void {
    const table = this.tableOf(second)
    const slot = table.find(first, second)
    if (slot !== none) this.collectAt(table, slot, into)
  }

  /** The same for a slot that is occupied. */
  collectAt(table: U64Table, slot: number, into: Int32Array): void {
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    if (other >= 0) {
      into[(one - 1) >>> 5]! |= 1 << ((one - 1) & 31)
      if (other > 0) into[(other - 1) >>> 5]! |= 1 << ((other - 1) & 31)
      return
    }
    const width = this.#sets.width
    const bits = this.#sets.bits
    for (let word = 0; word < width; word++) into[word]! |= bits[-other * width + word]!
  }

  /** Takes all holders that are not `live` out of an occupied slot, one by one; true when that emptied it. */
  strip(table: U64Table, slot: number, live: Int32Array, gone: (holder: number) => void): boolean {
    for (;;) {
      const holder = this.#deadHolderIn(table, slot, live)
      if (holder === none) return false
      const isEmptied = this.#leave(table, slot, holder)
      gone(holder)
      if (isEmptied) return true
    }
  }

  #isHeld(table: U64Table, slot: number, holder: number): boolean {
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    return other < 0 ? this.#sets.has(-other, holder) : one === holder + 1 || other === holder + 1
  }

  /** Adds a holder that an occupied slot does not have yet; false when there is no memory. */
  #join(table: U64Table, slot: number, holder: number): boolean {
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    if (other === 0) {
      table.setValue(slot, one, holder + 1)
    } else if (other > 0) {
      const set = this.#sets.allocate()
      if (set === 0) return false
      for (const id of [one - 1, other - 1, holder]) this.#sets.set(set, id)
      table.setValue(slot, 3, -set)
    } else {
      this.#sets.set(-other, holder)
      table.setValue(slot, one + 1, other)
    }
    return true
  }

  /** Takes out a holder that the slot has; true when that emptied the slot. */
  #leave(table: U64Table, slot: number, holder: number): boolean {
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    if (other === 0) {
      table.delete(slot)
      this.#blockCount--
      return true
    }
    if (other > 0) {
      table.setValue(slot, one === holder + 1 ? other : one, 0)
      return false
    }
    this.#sets.unset(-other, holder)
    if (one - 1 > 1) {
      table.setValue(slot, one - 1, other)
    } else {
      table.setValue(slot, this.#sets.lowest(-other) + 1, 0)
      this.#sets.free(-other)
    }
    return false
  }

  #deadHolderIn(table: U64Table, slot: number, live: Int32Array): number {
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    if (other >= 0) {
      if (bitAt(live, one - 1) === 0) return one - 1
      return other > 0 && bitAt(live, other - 1) === 0 ? other - 1 : none
    }
    const width = this.#sets.width
    for (let word = 0; word < width; word++) {
      const dead = this.#sets.bits[-other * width + word]! & ~live[word]!
      if (dead !== 0) return word * 32 + lowestBit(dead)
    }
    return none
  }
}
