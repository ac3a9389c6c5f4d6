// Overlaps by a linear walk: one pass over a prompt's hashes finds where each of a group of holders ends, all holders of a
// block at once. Invariant: the holders that are alive hold all blocks before the current one.
import type { BlockPlane } from './block-plane.js'
import { bitAt, type HolderSets, lowestBit } from './holder-sets.js'
import type { Holders } from './holders.js'

export class PrefixWalk {
  readonly #holders: Holders
  readonly #sets: HolderSets
  #alive = new Int32Array(1)
  #union = new Int32Array(1)
  #aliveCount = 0

  constructor(holders: Holders, sets: HolderSets) {
    this.#holders = holders
    this.#sets = sets
  }

  /** An empty group; holders join it with `add`. */
  begin(): void {
    const width = this.#sets.width
    if (this.#alive.length < width) {
      this.#alive = new Int32Array(width)
      this.#union = new Int32Array(width)
    } else this.#alive.fill(0)
    this.#aliveCount = 0
  }

  /** @param holder a live one, not in the group yet */
  add(holder: number): void {
    this.#alive[holder >>> 5]! |= 1 << (holder & 31)
    this.#aliveCount++
  }

  /** The group is all live holders. */
  addAll(count: number): void {
    this.#alive.set(this.#holders.live)
    this.#aliveCount = count
  }

  /**
   * Writes how far each of the group goes in the union of the planes.
   * @param halves of the hashes, two for each
   * @param start all of the group hold the blocks before it, or have their overlap written already and are further
   * @param overlaps by target number
   */
  run(planes: readonly BlockPlane[], halves: Int32Array, start: number, overlaps: Uint32Array): void {
    const [plane] = planes
    const depth =
      planes.length === 1 && plane !== undefined
        ? this.#walkOne(plane, halves, start, overlaps)
        : this.#walkUnion(planes, halves, start, overlaps)
    for (let word = 0; word < this.#sets.width && this.#aliveCount > 0; word++)
      if (this.#alive[word] !== 0) this.#aliveCount -= this.#end(this.#alive[word]!, word, depth, overlaps)
  }

  #walkOne(plane: BlockPlane, halves: Int32Array, start: number, overlaps: Uint32Array): number {
    const length = halves.length / 2
    const alive = this.#alive
    const bits = this.#sets.bits
    const width = this.#sets.width
    let aliveCount = this.#aliveCount
    let depth = start
    for (; depth < length && aliveCount > 0; depth++) {
      const first = halves[depth * 2]!
      const second = halves[depth * 2 + 1]!
      const table = plane.tableOf(second)
      const slot = table.find(first, second)
      if (slot < 0) break
      const one = table.valueFirst(slot)
      const other = table.valueSecond(slot)
      if (other < 0) {
        const from = -other * width
        for (let word = 0; word < width; word++) {
          const dying = alive[word]! & ~bits[from + word]!
          if (dying !== 0) aliveCount -= this.#end(dying, word, depth, overlaps)
        }
        continue
      }
      const survivors = bitAt(alive, one - 1) + (other > 0 ? bitAt(alive, other - 1) : 0)
      if (survivors === aliveCount) continue
      for (let word = 0; word < width; word++) {
        let kept = (one - 1) >>> 5 === word ? 1 << ((one - 1) & 31) : 0
        if (other > 0 && (other - 1) >>> 5 === word) kept |= 1 << ((other - 1) & 31)
        const dying = alive[word]! & ~kept
        if (dying !== 0) aliveCount -= this.#end(dying, word, depth, overlaps)
      }
    }
    this.#aliveCount = aliveCount
    return depth
  }

  #walkUnion(
    planes: readonly BlockPlane[],
    halves: Int32Array,
    start: number,
    overlaps: Uint32Array,
  ): number {
    const length = halves.length / 2
    const alive = this.#alive
    const union = this.#union
    const width = this.#sets.width
    let depth = start
    for (; depth < length && this.#aliveCount > 0; depth++) {
      union.fill(0)
      for (const plane of planes) plane.collect(halves[depth * 2]!, halves[depth * 2 + 1]!, union)
      for (let word = 0; word < width; word++) {
        const dying = alive[word]! & ~union[word]!
        if (dying !== 0) this.#aliveCount -= this.#end(dying, word, depth, overlaps)
      }
    }
    return depth
  }

  /** Writes the overlap of the holders whose bits are in `dying` and takes them out of the group. Returns how many. */
  #end(dying: number, word: number, depth: number, overlaps: Uint32Array): number {
    this.#alive[word]! &= ~dying
    let count = 0
    for (let rest = dying; rest !== 0; rest &= rest - 1) {
      overlaps[this.#holders.targetOf(word * 32 + lowestBit(rest))] = depth
      count++
    }
    return count
  }
}
