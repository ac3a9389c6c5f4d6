// One index for all targets: block hash -> set of holders, so that one pass over a prompt's hashes finds the overlap of
// every target. A target is what callers see; a holder is what blocks carry. Clearing a target only gives it a new holder
// and removing it only takes its holder away, which is why both cost the same for one block and for a million. Blocks
// still carrying a dead holder are invisible at once and are swept a few slots with each later change; a holder id
// comes into use again only after its last block is swept.
import { invariant } from '../invariant.js'
import { HolderSets, lowestBit } from './holder-sets.js'
import { U64Table } from './u64-table.js'

export interface PrefixIndexOptions {
  /**
   * Most (block, target) pairs held, those that wait for the sweep included; > 0. One more is refused and counted. Read at each
   * addition: a lower bound drops nothing, and refuses until enough was removed.
   */
  readonly blocksMax: number
}

// Sub-tables by the top byte of the hash: one growing by rehash stops the loop for a 256th of the whole.
const tableCount = 256
// A change visits this many slots for the sweep, so a full sweep needs a 64th as many changes as there are slots.
const sweepSlotsPerChange = 64
// Each dead holder widens every bitset by a bit. Beyond this many, removing or clearing finishes the sweep itself.
const deadHoldersMax = 1024
const none = -1

/**
 * Which target holds which blocks, for prefix overlap. Not a cache: entries stay until removed. Single-threaded; no
 * method awaits. Numbers of targets that were removed are accepted everywhere and read as empty.
 */
export class PrefixIndex {
  readonly #options: PrefixIndexOptions
  readonly #tables: readonly U64Table[] = Array.from({ length: tableCount }, () => new U64Table())
  readonly #sets = new HolderSets()
  readonly #hash = new BigUint64Array(1)
  readonly #halves = new Int32Array(this.#hash.buffer)
  readonly #holderOfTarget: number[] = []
  /** The target of a live holder; none of a dead one. */
  readonly #targetOfHolder: number[] = []
  readonly #pairsOfHolder: number[] = []
  readonly #freeTargets: number[] = []
  readonly #freeHolders: number[] = []
  #live = new Int32Array(1)
  #alive = new Int32Array(1)
  #liveCount = 0
  #deadCount = 0
  #deadPairCount = 0
  #pairCount = 0
  #refusedCount = 0
  #sweepTable = 0
  #sweepSlot = 0

  constructor(options: PrefixIndexOptions) {
    this.#options = options
  }

  /** Length that the `overlaps` of `match` must have: above every target number ever given out. */
  get targetCount(): number {
    return this.#holderOfTarget.length
  }

  /** (block, target) pairs that readers see. */
  get pairCount(): number {
    return this.#pairCount - this.#deadPairCount
  }

  /** Distinct blocks, those that only wait for the sweep included. */
  get blockCount(): number {
    return this.#tables.reduce((sum, table) => sum + table.size, 0)
  }

  /** Pairs turned away at `blocksMax`. */
  get refusedCount(): number {
    return this.#refusedCount
  }

  /** Memory of the tables and sets. */
  get sizeBytes(): number {
    let bytes = this.#sets.sizeBytes
    for (const table of this.#tables) bytes += table.sizeBytes
    return bytes
  }

  /** @returns the number of a new target without blocks; small; numbers of removed targets are used again */
  addTarget(): number {
    const target = this.#freeTargets.pop() ?? this.#holderOfTarget.length
    this.#holderOfTarget[target] = this.#newHolder(target)
    this.#liveCount++
    return target
  }

  /** Takes a target out for good; readers stop seeing it now. */
  removeTarget(target: number): void {
    const holder = this.#holderOf(target)
    if (holder === none) return
    this.#holderOfTarget[target] = none
    this.#targetOfHolder[holder] = none
    this.#freeTargets.push(target)
    this.#liveCount--
    this.#kill(holder)
  }

  /** Forgets all blocks of a target, which stays. */
  clear(target: number): void {
    const holder = this.#holderOf(target)
    if (holder === none || this.#pairsOfHolder[holder] === 0) return
    this.#targetOfHolder[holder] = none
    this.#kill(holder)
    this.#holderOfTarget[target] = this.#newHolder(target)
  }

  /** Marks a block as held. True when it is held afterwards; false when refused at `blocksMax` or the target is not live. */
  add(target: number, hash: bigint): boolean {
    const holder = this.#holderOf(target)
    if (holder === none) return false
    if (this.#deadCount > 0) this.sweep(sweepSlotsPerChange)
    const table = this.#tableOf(hash)
    const first = this.#halves[0]!
    const second = this.#halves[1]!
    let slot = table.find(first, second)
    if (slot !== none && this.#isHeld(table, slot, holder)) return true
    if (this.#pairCount >= this.#options.blocksMax) {
      // Memory that only waits for the sweep is no reason to refuse.
      while (this.#deadCount > 0) this.sweep(sweepSlotsPerChange)
      if (this.#pairCount >= this.#options.blocksMax) {
        this.#refusedCount++
        return false
      }
      slot = table.find(first, second)
    }
    if (slot === none) table.setValue(table.insert(first, second), holder + 1, 0)
    else this.#join(table, slot, holder)
    this.#pairCount++
    this.#pairsOfHolder[holder]!++
    return true
  }

  /** Marks a block as no longer held; true when it was. */
  remove(target: number, hash: bigint): boolean {
    const holder = this.#holderOf(target)
    if (holder === none) return false
    if (this.#deadCount > 0) this.sweep(sweepSlotsPerChange)
    const table = this.#tableOf(hash)
    const slot = table.find(this.#halves[0]!, this.#halves[1]!)
    if (slot === none || !this.#isHeld(table, slot, holder)) return false
    this.#leave(table, slot, holder)
    table.shrink()
    return true
  }

  has(target: number, hash: bigint): boolean {
    const holder = this.#holderOf(target)
    if (holder === none) return false
    const table = this.#tableOf(hash)
    const slot = table.find(this.#halves[0]!, this.#halves[1]!)
    return slot !== none && this.#isHeld(table, slot, holder)
  }

  /** Blocks held by a target. */
  blocksOf(target: number): number {
    const holder = this.#holderOf(target)
    return holder === none ? 0 : this.#pairsOfHolder[holder]!
  }

  /**
   * Overlap of a prompt with every target: how many of its leading blocks the target holds without a hole. One pass over
   * the query, ending where no target goes on.
   * @param hashes chained block hashes of the prompt; only read
   * @param overlaps by target number, `targetCount` long or longer: blocks, 0 for numbers that are not live; overwritten
   */
  match(hashes: BigUint64Array, overlaps: Uint32Array): void {
    invariant(
      overlaps.length >= this.targetCount,
      `overlaps of ${overlaps.length} numbers are written for ${this.targetCount} targets`,
    )
    overlaps.fill(0)
    const halves = new Int32Array(hashes.buffer, hashes.byteOffset, hashes.length * 2)
    const alive = this.#alive
    alive.set(this.#live)
    const bits = this.#sets.bits
    const width = this.#sets.width
    let aliveCount = this.#liveCount
    let depth = 0
    for (; depth < hashes.length && aliveCount > 0; depth++) {
      const first = halves[depth * 2]!
      const second = halves[depth * 2 + 1]!
      const table = this.#tables[second >>> 24]!
      const slot = table.find(first, second)
      if (slot === none) break
      const one = table.valueFirst(slot)
      const other = table.valueSecond(slot)
      if (other < 0) {
        const start = -other * width
        for (let word = 0; word < width; word++) {
          const dying = alive[word]! & ~bits[start + word]!
          if (dying !== 0) aliveCount -= this.#end(dying, word, depth, overlaps)
        }
        continue
      }
      const survivors = isSet(alive, one - 1) + (other > 0 ? isSet(alive, other - 1) : 0)
      if (survivors === aliveCount) continue
      for (let word = 0; word < width; word++) {
        let kept = (one - 1) >>> 5 === word ? 1 << ((one - 1) & 31) : 0
        if (other > 0 && (other - 1) >>> 5 === word) kept |= 1 << ((other - 1) & 31)
        const dying = alive[word]! & ~kept
        if (dying !== 0) aliveCount -= this.#end(dying, word, depth, overlaps)
      }
    }
    for (let word = 0; word < width && aliveCount > 0; word++)
      if (alive[word] !== 0) this.#end(alive[word]!, word, depth, overlaps)
  }

  /**
   * Sweeps for an owner that has time: visits up to `slotCount` slots for blocks of cleared and removed targets.
   * Every change does a little of this by itself.
   */
  sweep(slotCount: number): void {
    for (let visited = 0; visited < slotCount && this.#deadCount > 0; visited++) {
      const table = this.#tables[this.#sweepTable]!
      if (this.#sweepSlot >= table.slotCount) {
        table.shrink()
        this.#sweepTable = (this.#sweepTable + 1) % tableCount
        this.#sweepSlot = 0
        continue
      }
      // Deleting shifts other entries, perhaps past the cursor; those wait for the next round, since the counts per
      // holder and not the rounds say when a holder is done. The slot is visited again as it may have been refilled.
      if (!table.isOccupied(this.#sweepSlot) || !this.#stripDead(table, this.#sweepSlot)) this.#sweepSlot++
      if (this.#deadCount === 0) {
        // The round ends here, and with it the chance that the end of this table would have been.
        table.shrink()
        this.#sweepSlot = 0
      }
    }
  }

  #tableOf(hash: bigint): U64Table {
    this.#hash[0] = hash
    return this.#tables[this.#halves[1]! >>> 24]!
  }

  #holderOf(target: number): number {
    return this.#holderOfTarget[target] ?? none
  }

  #newHolder(target: number): number {
    const holder = this.#freeHolders.pop() ?? this.#targetOfHolder.length
    this.#targetOfHolder[holder] = target
    this.#pairsOfHolder[holder] = 0
    this.#sets.reserve(holder)
    if (this.#live.length < this.#sets.width) {
      const live = new Int32Array(this.#sets.width)
      live.set(this.#live)
      this.#live = live
      this.#alive = new Int32Array(this.#sets.width)
    }
    this.#live[holder >>> 5]! |= 1 << (holder & 31)
    return holder
  }

  #kill(holder: number): void {
    this.#live[holder >>> 5]! &= ~(1 << (holder & 31))
    this.#deadCount++
    this.#deadPairCount += this.#pairsOfHolder[holder]!
    if (this.#pairsOfHolder[holder] === 0) this.#release(holder)
    if (this.#deadCount > deadHoldersMax) while (this.#deadCount > 0) this.sweep(sweepSlotsPerChange)
  }

  /** Gives back a dead holder that no block carries any more. */
  #release(holder: number): void {
    this.#deadCount--
    this.#freeHolders.push(holder)
  }

  #isHeld(table: U64Table, slot: number, holder: number): boolean {
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    return other < 0 ? this.#sets.has(-other, holder) : one === holder + 1 || other === holder + 1
  }

  /** Adds a holder that an occupied slot does not have yet. */
  #join(table: U64Table, slot: number, holder: number): void {
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    if (other === 0) {
      table.setValue(slot, one, holder + 1)
    } else if (other > 0) {
      const set = this.#sets.allocate()
      for (const id of [one - 1, other - 1, holder]) this.#sets.set(set, id)
      table.setValue(slot, 3, -set)
    } else {
      this.#sets.set(-other, holder)
      table.setValue(slot, one + 1, other)
    }
  }

  /** Takes out a holder that the slot has; true when that emptied the slot. */
  #leave(table: U64Table, slot: number, holder: number): boolean {
    this.#pairCount--
    this.#pairsOfHolder[holder]!--
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    if (other === 0) {
      table.delete(slot)
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

  /** Takes all dead holders out of an occupied slot; true when that emptied it. */
  #stripDead(table: U64Table, slot: number): boolean {
    for (;;) {
      const holder = this.#deadHolderIn(table, slot)
      if (holder === none) return false
      const isEmptied = this.#leave(table, slot, holder)
      this.#deadPairCount--
      if (this.#pairsOfHolder[holder] === 0) this.#release(holder)
      if (isEmptied) return true
    }
  }

  #deadHolderIn(table: U64Table, slot: number): number {
    const one = table.valueFirst(slot)
    const other = table.valueSecond(slot)
    if (other >= 0) {
      if (isSet(this.#live, one - 1) === 0) return one - 1
      return other > 0 && isSet(this.#live, other - 1) === 0 ? other - 1 : none
    }
    const width = this.#sets.width
    for (let word = 0; word < width; word++) {
      const dead = this.#sets.bits[-other * width + word]! & ~this.#live[word]!
      if (dead !== 0) return word * 32 + lowestBit(dead)
    }
    return none
  }

  /** Writes the overlap of the targets whose bits are in `dying` and takes them out of the race. Returns how many. */
  #end(dying: number, word: number, depth: number, overlaps: Uint32Array): number {
    this.#alive[word]! &= ~dying
    let count = 0
    for (let rest = dying; rest !== 0; rest &= rest - 1) {
      overlaps[this.#targetOfHolder[word * 32 + lowestBit(rest)]!] = depth
      count++
    }
    return count
  }
}

function isSet(words: Int32Array, id: number): number {
  return (words[id >>> 5]! >>> (id & 31)) & 1
}
