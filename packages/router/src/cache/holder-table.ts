// One part of the prefix index: block hash -> who holds it.
//
// A slot's value is one word. 0 never occurs in a used slot. With the top bit clear it is the only holder's owner id + 1.
// With the top bit set the rest is the number of a link; links are pairs of words (owner id, number of the next link
// or `lastLink`), so that blocks held by many cost 8 bytes per further holder and blocks held by one cost nothing more.
import { noSlot, U64Map } from './u64-map.js'

const chained = 0x8000_0000
const lastLink = 0xffff_ffff
const linksMin = 16

/** Who an owner id stands for, and how many pairs it has. Shared by all parts. */
export interface OwnerFacts {
  /** Target number by owner id; `deadOwner` when its pairs are void. */
  readonly targetOf: Int32Array
  /** Pairs by owner id, void ones included. */
  readonly pairsOf: Uint32Array
}

export const deadOwner = -1

export class HolderTable {
  readonly #slots = new U64Map(1)
  #links = new Uint32Array(linksMin * 2)
  #linkCount = 0
  #freeLink = lastLink
  #freeLinkCount = 0
  #sweepSlot = 0

  get blockCount(): number {
    return this.#slots.size
  }

  get sizeBytes(): number {
    return this.#slots.sizeBytes + this.#links.byteLength
  }

  has(low: number, high: number, owner: number): boolean {
    const slot = this.#slots.find(low, high)
    if (slot === noSlot) return false
    const value = this.#slots.value(slot)
    if (value < chained) return value === owner + 1
    for (let link = value - chained; link !== lastLink; link = this.#next(link)) {
      if (this.#links[link * 2] === owner) return true
    }
    return false
  }

  /** @returns false when the pair was there already */
  add(low: number, high: number, owner: number, facts: OwnerFacts): boolean {
    if (this.has(low, high, owner)) return false
    const slot = this.#slots.insert(low, high)
    const value = this.#slots.value(slot)
    if (value === 0) this.#slots.setValue(slot, owner + 1)
    else {
      const rest = value < chained ? this.#newLink(value - 1, lastLink) : value - chained
      this.#slots.setValue(slot, chained + this.#newLink(owner, rest))
    }
    countPair(facts, owner, 1)
    return true
  }

  /** @returns false when the pair was not there */
  remove(low: number, high: number, owner: number, facts: OwnerFacts): boolean {
    if (!this.has(low, high, owner)) return false
    this.#keepOnly(this.#slots.find(low, high), facts, (other) => other !== owner)
    return true
  }

  /**
   * Moves on every live target that holds this block and all `depth` blocks before it.
   * @param overlaps blocks held so far, by target number
   * @returns how many targets moved on
   */
  advance(low: number, high: number, depth: number, overlaps: Uint32Array, targetOf: Int32Array): number {
    const slot = this.#slots.find(low, high)
    if (slot === noSlot) return 0
    const value = this.#slots.value(slot)
    if (value < chained) return step(targetOf[value - 1] as number, depth, overlaps)
    let moved = 0
    for (let link = value - chained; link !== lastLink; link = this.#next(link)) {
      moved += step(targetOf[this.#links[link * 2] as number] as number, depth, overlaps)
    }
    return moved
  }

  /**
   * Drops void pairs from the next `slotsMax` slots, going round.
   * @returns how many pairs were dropped
   */
  sweep(slotsMax: number, facts: OwnerFacts): number {
    let droppedCount = 0
    const keepsLive = (owner: number) => {
      if (facts.targetOf[owner] !== deadOwner) return true
      droppedCount += 1
      return false
    }
    for (let step = 0; step < slotsMax; step++) {
      if (this.#sweepSlot >= this.#slots.capacity) this.#sweepSlot = 0
      const slot = this.#sweepSlot
      // A slot that was emptied may have been filled from behind, so it is looked at again.
      if (!this.#slots.isUsed(slot) || this.#keepOnly(slot, facts, keepsLive)) this.#sweepSlot += 1
    }
    return droppedCount
  }

  get capacity(): number {
    return this.#slots.capacity
  }

  /** @returns false when nobody is left and the slot is gone */
  #keepOnly(slot: number, facts: OwnerFacts, keeps: (owner: number) => boolean): boolean {
    const value = this.#slots.value(slot)
    if (value < chained) {
      if (keeps(value - 1)) return true
      countPair(facts, value - 1, -1)
      this.#removeSlot(slot)
      return false
    }
    let kept = lastLink
    let keptCount = 0
    let link = value - chained
    while (link !== lastLink) {
      const next = this.#next(link)
      const owner = this.#links[link * 2] as number
      if (keeps(owner)) {
        this.#links[link * 2 + 1] = kept
        kept = link
        keptCount += 1
      } else {
        countPair(facts, owner, -1)
        this.#dropLink(link)
      }
      link = next
    }
    if (keptCount === 0) {
      this.#removeSlot(slot)
      return false
    }
    if (keptCount > 1) this.#slots.setValue(slot, chained + kept)
    else {
      this.#slots.setValue(slot, (this.#links[kept * 2] as number) + 1)
      this.#dropLink(kept)
    }
    this.#compactLinks()
    return true
  }

  #removeSlot(slot: number): void {
    this.#slots.removeSlot(slot)
    this.#compactLinks()
  }

  #next(link: number): number {
    return this.#links[link * 2 + 1] as number
  }

  #newLink(owner: number, next: number): number {
    let link = this.#freeLink
    if (link !== lastLink) {
      this.#freeLink = this.#next(link)
      this.#freeLinkCount -= 1
    } else {
      link = this.#linkCount++
      if (link * 2 >= this.#links.length) this.#resizeLinks(this.#links.length * 2)
    }
    this.#links[link * 2] = owner
    this.#links[link * 2 + 1] = next
    return link
  }

  #dropLink(link: number): void {
    this.#links[link * 2 + 1] = this.#freeLink
    this.#freeLink = link
    this.#freeLinkCount += 1
  }

  #resizeLinks(length: number): void {
    const links = new Uint32Array(length)
    links.set(this.#links.subarray(0, Math.min(length, this.#links.length)))
    this.#links = links
  }

  /** Gives memory back once most links are free: those in use are written anew, chain by chain. */
  #compactLinks(): void {
    const usedCount = this.#linkCount - this.#freeLinkCount
    // The rewrite walks all slots, so it waits until there are links in proportion.
    if (this.#linkCount <= linksMin || this.#linkCount * 4 < this.#slots.capacity) return
    if (usedCount * 4 > this.#linkCount) return
    const old = this.#links
    let length = linksMin * 2
    while (length < usedCount * 4) length *= 2
    this.#links = new Uint32Array(length)
    this.#linkCount = 0
    this.#freeLink = lastLink
    this.#freeLinkCount = 0
    for (let slot = 0; slot < this.#slots.capacity; slot++) {
      if (!this.#slots.isUsed(slot) || this.#slots.value(slot) < chained) continue
      let rewritten = lastLink
      for (
        let link = this.#slots.value(slot) - chained;
        link !== lastLink;
        link = old[link * 2 + 1] as number
      ) {
        rewritten = this.#newLink(old[link * 2] as number, rewritten)
      }
      this.#slots.setValue(slot, chained + rewritten)
    }
  }
}

function step(target: number, depth: number, overlaps: Uint32Array): number {
  if (target === deadOwner || overlaps[target] !== depth) return 0
  overlaps[target] = depth + 1
  return 1
}

function countPair(facts: OwnerFacts, owner: number, change: 1 | -1): void {
  facts.pairsOf[owner] = (facts.pairsOf[owner] as number) + change
}
