import { highOf, highWord, lowOf, lowWord, wordsOf } from './hash-words.js'
import { deadOwner, HolderTable } from './holder-table.js'

/** A table that doubles stalls for as long as it is large: 64 parts make 64 short pauses at different times of one long one. */
const partBits = 6
const partCount = 1 << partBits
/** Slots looked at for void pairs with every change, so that sweeping outruns filling. */
const sweepSlotsPerChange = 8
const ownersMin = 16

export interface PrefixIndexOptions {
  /** Most (block, target) pairs held, void ones that are not yet swept included; > 0. One more is refused and counted. */
  readonly blocksMax: number
}

/**
 * Which KV blocks which target holds, for all targets and block sizes at once: blocks are keyed by their chained hash,
 * which no two block sizes share by more than chance.
 *
 * A target's pairs carry an owner id. Clearing a target gives it a new one, so that readers forget everything at once;
 * void pairs are swept a few at a time with later changes, and an owner id is used again once its last pair is gone.
 */
export class PrefixIndex {
  readonly #blocksMax: number
  readonly #parts = Array.from({ length: partCount }, () => new HolderTable())
  #targetOf = new Int32Array(ownersMin).fill(deadOwner)
  #pairsOf = new Uint32Array(ownersMin)
  /** Owner id by target number; `deadOwner` for numbers that are free. */
  readonly #ownerOf: number[] = []
  readonly #freeTargets: number[] = []
  readonly #freeOwners: number[] = []
  readonly #dying = new Set<number>()
  #ownerCount = 0
  #pairCount = 0
  #refusedCount = 0
  #sweepPart = 0

  constructor(options: PrefixIndexOptions) {
    this.#blocksMax = options.blocksMax
  }

  /** (block, target) pairs that readers see. */
  get pairCount(): number {
    let voidCount = 0
    for (const owner of this.#dying) voidCount += this.#pairsOf[owner] as number
    return this.#pairCount - voidCount
  }

  /** Distinct blocks, those only void pairs point to included. */
  get blockCount(): number {
    return this.#parts.reduce((sum, part) => sum + part.blockCount, 0)
  }

  /** Pairs turned away at `blocksMax`. */
  get refusedCount(): number {
    return this.#refusedCount
  }

  get sizeBytes(): number {
    return this.#parts.reduce((sum, part) => sum + part.sizeBytes, 0)
  }

  /** Length that the `overlaps` of `match` must have: above every target number. */
  get targetCount(): number {
    return this.#ownerOf.length
  }

  /** @returns the new target's number; numbers of removed targets are used again */
  addTarget(): number {
    const target = this.#freeTargets.pop() ?? this.#ownerOf.length
    this.#ownerOf[target] = this.#newOwner(target)
    return target
  }

  /** Forgets a target and all that it held. */
  removeTarget(target: number): void {
    this.#retire(target)
    this.#ownerOf[target] = deadOwner
    this.#freeTargets.push(target)
  }

  /** Forgets all that a target held; the same for a reader however much it was. */
  clear(target: number): void {
    if (this.blocksOf(target) === 0) return
    this.#retire(target)
    this.#ownerOf[target] = this.#newOwner(target)
  }

  /** Blocks that a target holds. */
  blocksOf(target: number): number {
    return this.#pairsOf[this.#ownerOf[target] as number] as number
  }

  has(target: number, hash: bigint): boolean {
    const low = lowOf(hash)
    return this.#part(low).has(low, highOf(hash), this.#ownerOf[target] as number)
  }

  /** @returns whether the target holds the block now: false only when `blocksMax` stood in the way */
  add(target: number, hash: bigint): boolean {
    const [low, high, owner] = [lowOf(hash), highOf(hash), this.#ownerOf[target] as number]
    this.sweep(sweepSlotsPerChange)
    if (this.#pairCount >= this.#blocksMax) {
      if (this.#part(low).has(low, high, owner)) return true
      this.#sweepAll()
      if (this.#pairCount >= this.#blocksMax) {
        this.#refusedCount += 1
        return false
      }
    }
    if (this.#part(low).add(low, high, owner, this.#facts)) this.#pairCount += 1
    return true
  }

  /** Does nothing when the target does not hold the block. */
  remove(target: number, hash: bigint): void {
    const low = lowOf(hash)
    if (this.#part(low).remove(low, highOf(hash), this.#ownerOf[target] as number, this.#facts))
      this.#pairCount -= 1
    this.sweep(sweepSlotsPerChange)
  }

  /**
   * For every target the number of leading blocks of a prompt that it holds; the first hole ends its count.
   * One pass over the prompt, which ends where the last target falls off. Allocates nothing.
   * @param overlaps by target number, `targetCount` long; overwritten
   */
  match(hashes: BigUint64Array, overlaps: Uint32Array): void {
    overlaps.fill(0)
    const words = wordsOf(hashes)
    for (let depth = 0; depth < hashes.length; depth++) {
      const low = words[depth * 2 + lowWord] as number
      const high = words[depth * 2 + highWord] as number
      if (this.#part(low).advance(low, high, depth, overlaps, this.#targetOf) === 0) return
    }
  }

  /** Looks at up to `slotsMax` slots for pairs of cleared and removed targets; free when there are none. */
  sweep(slotsMax: number): void {
    if (this.#dying.size === 0) return
    const droppedCount = (this.#parts[this.#sweepPart] as HolderTable).sweep(slotsMax, this.#facts)
    this.#sweepPart = (this.#sweepPart + 1) % partCount
    if (droppedCount > 0) this.#buryTheDead(droppedCount)
  }

  #sweepAll(): void {
    // Slots may move while they are swept, so a round can miss a pair; owners are counted, so that none is missed for good.
    while (this.#dying.size > 0) {
      for (const part of this.#parts) this.#buryTheDead(part.sweep(part.capacity * 2, this.#facts))
    }
  }

  #buryTheDead(droppedCount: number): void {
    this.#pairCount -= droppedCount
    for (const owner of this.#dying) {
      if (this.#pairsOf[owner] !== 0) continue
      this.#dying.delete(owner)
      this.#freeOwners.push(owner)
    }
  }

  #retire(target: number): void {
    const owner = this.#ownerOf[target] as number
    this.#targetOf[owner] = deadOwner
    if (this.#pairsOf[owner] === 0) this.#freeOwners.push(owner)
    else this.#dying.add(owner)
  }

  #newOwner(target: number): number {
    const owner = this.#freeOwners.pop() ?? this.#ownerCount++
    if (owner >= this.#targetOf.length) {
      const [targetOf, pairsOf] = [this.#targetOf, this.#pairsOf]
      this.#targetOf = new Int32Array(targetOf.length * 2).fill(deadOwner)
      this.#targetOf.set(targetOf)
      this.#pairsOf = new Uint32Array(pairsOf.length * 2)
      this.#pairsOf.set(pairsOf)
    }
    this.#targetOf[owner] = target
    return owner
  }

  get #facts() {
    return { targetOf: this.#targetOf, pairsOf: this.#pairsOf }
  }

  #part(low: number): HolderTable {
    // The tables probe by other bits of a mix, so taking these as they are does not crowd any part.
    return this.#parts[low >>> (32 - partBits)] as HolderTable
  }
}
