// Which holder has which block in which plane, how often, and the sweep of what dead holders left. Invariant: the first
// reference of a (block, holder, plane) is the pair in the plane; only further ones are in the holder's side map.
import { BlockPlane, tablesPerPlane } from './block-plane.js'
import { HolderSets, lowestBit } from './holder-sets.js'
import { Holders, optimisticPlane, planeCount } from './holders.js'
import type { MemoryLedger } from './memory-ledger.js'

// A change visits this many slots for the sweep, so a full sweep needs a 64th as many changes as there are slots.
const sweepSlotsPerChange = 64
// Visited before a change is refused for want of memory that the sweep may free.
const sweepSlotsAtBound = 65_536
// Each dead holder widens every bitset by a bit. Beyond this many, killing one finishes the sweep itself.
const deadHoldersMax = 1024
const extraCountMax = 2 ** 40 - 1

/** Hashes come as the halves of a typed-array view on them. */
export class PairStore {
  readonly sets: HolderSets
  readonly holders: Holders
  readonly planes: readonly BlockPlane[]
  readonly #pairsMax: number
  readonly #hash = new BigUint64Array(1)
  readonly #halves = new Int32Array(this.#hash.buffer)
  /** Of all tiers, those of dead holders included. */
  #pairCount = 0
  #deadPairCount = 0
  #refusedPairCount = 0
  #sweepPlane = 0
  #sweepTable = 0
  #sweepSlot = 0

  constructor(ledger: MemoryLedger, pairsMax: number) {
    this.#pairsMax = pairsMax
    this.sets = new HolderSets(ledger)
    this.holders = new Holders(ledger, this.sets)
    this.planes = Array.from({ length: planeCount }, () => new BlockPlane(ledger, this.sets))
  }

  /** Of live holders, all tiers. */
  get pairCount(): number {
    return this.#pairCount - this.#deadPairCount
  }

  /** Of holders that wait for the sweep. */
  get deadPairCount(): number {
    return this.#deadPairCount
  }

  /** Turned away, those behind a refused one not included. */
  get refusedPairCount(): number {
    return this.#refusedPairCount
  }

  /** Distinct (block, tier), those that wait for the sweep included. */
  get blockCount(): number {
    return this.planes.reduce((sum, plane, at) => sum + (at === optimisticPlane ? 0 : plane.blockCount), 0)
  }

  get sizeBytes(): number {
    return this.planes.reduce(
      (sum, plane) => sum + plane.sizeBytes,
      this.sets.sizeBytes + this.holders.sizeBytes,
    )
  }

  has(holder: number, plane: number, first: number, second: number): boolean {
    return this.planes[plane]!.has(first, second, holder)
  }

  /** One reference more. False when refused: a new pair at a bound, or a further reference without memory for it. */
  retain(holder: number, plane: number, first: number, second: number): boolean {
    const blocks = this.planes[plane]!
    const isTier = plane !== optimisticPlane
    if (isTier && this.pairCount >= this.#pairsMax && !blocks.has(first, second, holder)) {
      this.#refusedPairCount++
      return false
    }
    let added = blocks.add(first, second, holder)
    if (added === 'noMemory' && this.holders.deadCount > 0) {
      // Memory that only waits for the sweep: one step of it may make room, and the next refusal does the next step.
      this.sweep(sweepSlotsAtBound)
      added = blocks.add(first, second, holder)
    }
    if (added === 'new') {
      this.holders.addPair(holder, plane)
      if (isTier) this.#pairCount++
      return true
    }
    if (added === 'present') {
      const extras = this.holders.extrasFor(holder, plane)
      const hash = this.#joined(first, second)
      const count = extras.get(hash) ?? 0
      // A trillion copies of a block: whatever counts them is broken, and the count stays where it is.
      if (count >= extraCountMax || extras.set(hash, count + 1)) return true
    }
    if (isTier) this.#refusedPairCount++
    return false
  }

  /** One reference less. True when the pair ended with that. */
  release(holder: number, plane: number, first: number, second: number): boolean {
    const extras = this.holders.extrasOf(holder, plane)
    if (extras !== undefined && extras.size > 0) {
      const hash = this.#joined(first, second)
      const count = extras.get(hash)
      if (count !== undefined) {
        if (count === 1) extras.delete(hash)
        else extras.set(hash, count - 1)
        return false
      }
    }
    if (!this.planes[plane]!.remove(first, second, holder)) return false
    this.holders.dropPair(holder, plane)
    if (plane !== optimisticPlane) this.#pairCount--
    return true
  }

  /** For a snapshot: a new pair, whatever the bound. */
  put(holder: number, tier: number, hash: bigint): 'new' | 'present' | 'noMemory' {
    this.#hash[0] = hash
    const added = this.planes[tier]!.add(this.#halves[0]!, this.#halves[1]!, holder)
    if (added !== 'new') return added
    this.holders.addPair(holder, tier)
    this.#pairCount++
    return added
  }

  /** References beyond the first. */
  extraCount(holder: number, tier: number, hash: bigint): number {
    return this.holders.extrasOf(holder, tier)?.get(hash) ?? 0
  }

  /** Takes its target from a holder; readers stop seeing its blocks now. */
  kill(holder: number): void {
    for (let tier = 0; tier < optimisticPlane; tier++)
      this.#deadPairCount += this.holders.pairsOf(holder, tier)
    this.holders.kill(holder)
    if (this.holders.deadCount > deadHoldersMax) this.sweepAll()
  }

  /** What a change does for the sweep. */
  sweepAfter(changeCount: number): void {
    if (this.holders.deadCount > 0) this.sweep(changeCount * sweepSlotsPerChange)
  }

  sweepAll(): void {
    while (this.holders.deadCount > 0) this.sweep(sweepSlotsAtBound)
  }

  /** Visits up to `slots` slots for blocks of dead holders. */
  sweep(slots: number): void {
    for (let visited = 0; visited < slots && this.holders.deadCount > 0; visited++) {
      const plane = this.planes[this.#sweepPlane]!
      const table = plane.table(this.#sweepTable)
      if (this.#sweepSlot >= table.slotCount) {
        table.shrink()
        this.#sweepSlot = 0
        this.#sweepTable = (this.#sweepTable + 1) % tablesPerPlane
        if (this.#sweepTable === 0) this.#sweepPlane = (this.#sweepPlane + 1) % planeCount
        continue
      }
      // Deleting shifts other entries, perhaps past the cursor; those wait for the next round, since the counts per
      // holder and not the rounds say when a holder is done. The slot is visited again as it may have been refilled.
      const isOccupied = table.isOccupied(this.#sweepSlot)
      if (!isOccupied || !plane.strip(table, this.#sweepSlot, this.holders.live, this.#onSwept))
        this.#sweepSlot++
      if (this.holders.deadCount === 0) {
        // The round ends here, and with it the chance that the end of this table would have been.
        table.shrink()
        this.#sweepSlot = 0
      }
    }
  }

  /**
   * Every block of a tier that a live holder has.
   * @param visit gets the targets of these holders, in the first `count` places of an array that is used again
   */
  forEachBlock(tier: number, visit: (hash: bigint, targets: Uint16Array, count: number) => void): void {
    const plane = this.planes[tier]!
    const width = this.sets.width
    const found = new Int32Array(width)
    const targets = new Uint16Array(width * 32)
    for (let number = 0; number < tablesPerPlane; number++) {
      const table = plane.table(number)
      for (let slot = 0; slot < table.slotCount; slot++) {
        if (!table.isOccupied(slot)) continue
        found.fill(0)
        plane.collectAt(table, slot, found)
        let count = 0
        for (let word = 0; word < width; word++)
          for (let rest = found[word]! & this.holders.live[word]!; rest !== 0; rest &= rest - 1)
            targets[count++] = this.holders.targetOf(word * 32 + lowestBit(rest))
        if (count > 0) visit(this.#joined(table.keyFirst(slot), table.keySecond(slot)), targets, count)
      }
    }
  }

  readonly #onSwept = (holder: number): void => {
    if (this.#sweepPlane !== optimisticPlane) {
      this.#pairCount--
      this.#deadPairCount--
    }
    this.holders.dropPair(holder, this.#sweepPlane)
  }

  /** A hash of its halves. */
  #joined(first: number, second: number): bigint {
    this.#halves[0] = first
    this.#halves[1] = second
    return this.#hash[0]!
  }
}
