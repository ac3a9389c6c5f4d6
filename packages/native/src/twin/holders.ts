// Blocks carry holders, callers see targets. A live holder has one target; clearing a target gives it another holder and
// removing it only takes its holder away, which is why both cost the same for one block and for a million. Invariant: a
// dead holder is free exactly when no block of any plane carries it.
import type { HolderSets } from './holder-sets.js'
import type { MemoryLedger } from './memory-ledger.js'
import { SideMap } from './side-map.js'

/** The four tiers, and the optimistic blocks. */
export const planeCount = 5
export const optimisticPlane = 4
export const none = -1

export class Holders {
  readonly #ledger: MemoryLedger
  readonly #sets: HolderSets
  readonly #targets: number[] = []
  readonly #generations: number[] = []
  readonly #isMonotone: boolean[] = []
  readonly #holes: bigint[] = []
  /** By holder and plane: blocks that carry it, and the references that some of them have beyond the first. */
  readonly #pairs: number[] = []
  readonly #extras: (SideMap | undefined)[] = []
  readonly #free: number[] = []
  #live = new Int32Array(1)
  #deadCount = 0

  constructor(ledger: MemoryLedger, sets: HolderSets) {
    this.#ledger = ledger
    this.#sets = sets
  }

  /** A bit per holder that has a target; as wide as the sets. */
  get live(): Int32Array {
    return this.#live
  }

  /** Holders that blocks still carry, without a target. */
  get deadCount(): number {
    return this.#deadCount
  }

  get sizeBytes(): number {
    let bytes = this.#live.byteLength + this.#targets.length * 8 * (4 + 2 * planeCount)
    for (const extras of this.#extras) bytes += extras?.sizeBytes ?? 0
    return bytes
  }

  /** None of a dead one. */
  targetOf(holder: number): number {
    return this.#targets[holder]!
  }

  /** Tells lives of one holder number apart. */
  generationOf(holder: number): number {
    return this.#generations[holder]!
  }

  isMonotone(holder: number): boolean {
    return this.#isMonotone[holder]!
  }

  holesOf(holder: number): bigint {
    return this.#holes[holder]!
  }

  setHoles(holder: number, holes: bigint): void {
    this.#holes[holder] = holes
  }

  pairsOf(holder: number, plane: number): number {
    return this.#pairs[holder * planeCount + plane]!
  }

  isEmpty(holder: number): boolean {
    for (let plane = 0; plane < planeCount; plane++) if (this.pairsOf(holder, plane) !== 0) return false
    return true
  }

  addPair(holder: number, plane: number): void {
    this.#pairs[holder * planeCount + plane]!++
  }

  /** @returns whether that freed a dead holder */
  dropPair(holder: number, plane: number): boolean {
    this.#pairs[holder * planeCount + plane]!--
    return this.#targets[holder] === none && this.#freeIfUnused(holder)
  }

  /** References beyond the first; undefined where no block of the holder has any. */
  extrasOf(holder: number, plane: number): SideMap | undefined {
    return this.#extras[holder * planeCount + plane]
  }

  /** As `extrasOf`, made on first use. */
  extrasFor(holder: number, plane: number): SideMap {
    const at = holder * planeCount + plane
    let extras = this.#extras[at]
    if (extras === undefined) {
      extras = new SideMap(this.#ledger)
      this.#extras[at] = extras
    }
    return extras
  }

  /** A live holder without blocks, or none when there is no memory. */
  create(target: number, isMonotone: boolean): number {
    const reused = this.#free.pop()
    const holder = reused ?? this.#targets.length
    if (reused === undefined) {
      if (!this.#sets.reserve(holder)) return none
      if (this.#live.length < this.#sets.width) {
        const live = new Int32Array(this.#sets.width)
        live.set(this.#live)
        this.#live = live
      }
    }
    this.#targets[holder] = target
    this.#generations[holder] = (this.#generations[holder] ?? -1) + 1
    this.#isMonotone[holder] = isMonotone
    this.#holes[holder] = 0n
    for (let plane = 0; plane < planeCount; plane++) this.#pairs[holder * planeCount + plane] = 0
    this.#live[holder >>> 5]! |= 1 << (holder & 31)
    return holder
  }

  /** Takes its target from a live holder. Its further references go now, its blocks with the sweep. */
  kill(holder: number): void {
    this.#targets[holder] = none
    this.#live[holder >>> 5]! &= ~(1 << (holder & 31))
    this.#deadCount++
    for (let plane = 0; plane < planeCount; plane++) {
      this.#extras[holder * planeCount + plane]?.clear()
      this.#extras[holder * planeCount + plane] = undefined
    }
    this.#freeIfUnused(holder)
  }

  #freeIfUnused(holder: number): boolean {
    if (!this.isEmpty(holder)) return false
    this.#deadCount--
    this.#free.push(holder)
    return true
  }
}
