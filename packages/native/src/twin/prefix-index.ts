// The TypeScript twin of `cpp/core/prefix_index.h`, which states what both do in every case: oracle in tests, fallback
// where no binary fits. It differs where nobody can tell by an answer:
//
//   - It walks linearly for every target, so all live targets count as linear, no match is verified, and none mismatches.
//     It does not count the holes of its views; snapshots of it say of targets of views that they are not prefix-monotone,
//     so that whoever restores them does not jump.
//   - Sizes are those of typed arrays and an estimate for maps; at `bytesMax` it refuses at another moment than C++ does.
//   - It sweeps at its own pace: `deadPairs`, and `blocks` while there are dead pairs, may differ.
//   - Its handle is good in its own thread alone.
import { NativeBoundError, NativeBufferError, SnapshotError } from '../errors.js'
import { indexSettings, type PrefixIndexSettings } from '../options.js'
import type {
  CacheView,
  CacheViewOptions,
  MatchOptions,
  PrefixIndex,
  PrefixIndexOptions,
  PrefixIndexStats,
  Tier,
} from '../ports.js'
import { checkMatchOptions, checkTier, checkTime } from './arguments.js'
import { chainBlockHashes } from './block-hash.js'
import type { BlockPlane } from './block-plane.js'
import { TwinCacheView } from './cache-view.js'
import { halvesOf } from './halves.js'
import { none, optimisticPlane } from './holders.js'
import { MemoryLedger } from './memory-ledger.js'
import { OptimisticQueue } from './optimistic-queue.js'
import { PairStore } from './pair-store.js'
import { PrefixWalk } from './prefix-match.js'
import { badSnapshot, readSnapshot, type SnapshotVisitor, writeSnapshot } from './prefix-snapshot.js'

const tierNumbers: readonly Tier[] = [0, 1, 2, 3]
const deviceTier = 0
const hashBytes = 8

/** Numbers the handles of this thread. */
let twinCount = 0

/** Single-threaded; no method awaits. */
export class TwinPrefixIndex implements PrefixIndex {
  readonly handle = `twin-${twinCount++}`
  readonly #options: PrefixIndexSettings
  readonly #ledger: MemoryLedger
  readonly #hash = new BigUint64Array(1)
  readonly #halves = new Int32Array(this.#hash.buffer)
  /** Holder of each target; none where the number is free. */
  #holderOfTarget: number[] = []
  #pairs!: PairStore
  #walk!: PrefixWalk
  #optimistic!: OptimisticQueue
  #lastDeadlineMs = 0
  #liveCount = 0
  /** Behind a refused one in its call. */
  #skippedPairCount = 0
  #refusedOptimisticCount = 0
  #matchCount = 0

  /** @throws InvalidNativeOptionsError */
  constructor(options: PrefixIndexOptions = {}) {
    this.#options = indexSettings(options)
    this.#ledger = new MemoryLedger(this.#options.bytesMax)
    this.#begin()
  }

  get targetCount(): number {
    return this.#holderOfTarget.length
  }

  addTarget({ isPrefixMonotone = false }: { isPrefixMonotone?: boolean } = {}): number {
    const { targetsMax } = this.#options
    if (this.#liveCount >= targetsMax)
      throw new NativeBoundError(`no more than ${targetsMax} targets: raise targetsMax`)
    const free = this.#liveCount < this.targetCount ? this.#holderOfTarget.indexOf(none) : this.targetCount
    this.#addTargetAt(free, isPrefixMonotone)
    return free
  }

  removeTarget(target: number): void {
    const holder = this.#holderOf(target)
    if (holder === none) return
    this.#holderOfTarget[target] = none
    this.#liveCount--
    this.#pairs.kill(holder)
  }

  clear(target: number): void {
    const holder = this.#holderOf(target)
    if (holder === none) return
    const { holders } = this.#pairs
    holders.setHoles(holder, 0n)
    if (holders.isEmpty(holder)) return
    const isMonotone = holders.isMonotone(holder)
    this.#pairs.kill(holder)
    let fresh = holders.create(target, isMonotone)
    if (fresh === none) {
      // Not even memory for one more holder: the old one is emptied now, and comes into use again.
      this.#pairs.sweepAll()
      fresh = holders.create(target, isMonotone)
    }
    this.#holderOfTarget[target] = fresh
  }

  retain(target: number, tier: Tier, hashes: BigUint64Array): number {
    const plane = checkTier(tier)
    const holder = this.#holderOf(target)
    if (holder === none) return 0
    this.#pairs.sweepAfter(hashes.length)
    const halves = halvesOf(hashes)
    for (let at = 0; at < hashes.length; at++) {
      if (this.#pairs.retain(holder, plane, halves[at * 2]!, halves[at * 2 + 1]!)) continue
      this.#skippedPairCount += hashes.length - at - 1
      return at
    }
    return hashes.length
  }

  release(target: number, tier: Tier, hashes: BigUint64Array): number {
    const plane = checkTier(tier)
    const holder = this.#holderOf(target)
    if (holder === none) return 0
    this.#pairs.sweepAfter(hashes.length)
    const halves = halvesOf(hashes)
    let endedCount = 0
    for (let at = 0; at < hashes.length; at++)
      if (this.#pairs.release(holder, plane, halves[at * 2]!, halves[at * 2 + 1]!)) endedCount++
    return endedCount
  }

  /** For views: one reference more to one block. False when refused, which is counted. */
  retainOne(target: number, tier: Tier, first: number, second: number): boolean {
    const holder = this.#holderOf(target)
    if (holder === none) return false
    this.#pairs.sweepAfter(1)
    return this.#pairs.retain(holder, tier, first, second)
  }

  /** For views: one reference less. True when the pair ended with that. */
  releaseOne(target: number, tier: Tier, first: number, second: number): boolean {
    const holder = this.#holderOf(target)
    if (holder === none) return false
    this.#pairs.sweepAfter(1)
    return this.#pairs.release(holder, tier, first, second)
  }

  /** For views. */
  hasOne(target: number, tier: Tier, first: number, second: number): boolean {
    const holder = this.#holderOf(target)
    return holder !== none && this.#pairs.has(holder, tier, first, second)
  }

  addOptimistic(target: number, hashes: BigUint64Array, nowMs: number): number {
    const atMs = checkTime(nowMs)
    this.#expire(atMs)
    const holder = this.#holderOf(target)
    if (holder === none) return 0
    // A clock that goes back is read as standing still.
    const deadlineMs = Math.max(atMs + this.#options.optimisticTtlMs, this.#lastDeadlineMs)
    this.#lastDeadlineMs = deadlineMs
    const room = this.#options.optimisticBlocksMax - this.#optimistic.blockCount
    const halves = halvesOf(hashes)
    let taken = 0
    while (taken < hashes.length && taken < room) {
      if (!this.#pairs.retain(holder, optimisticPlane, halves[taken * 2]!, halves[taken * 2 + 1]!)) break
      taken++
    }
    if (taken > 0) {
      const generation = this.#pairs.holders.generationOf(holder)
      const run = { holder, generation, halves: halves.slice(0, taken * 2), deadlineMs }
      if (!this.#optimistic.push(run)) {
        for (let at = 0; at < taken; at++)
          this.#pairs.release(holder, optimisticPlane, halves[at * 2]!, halves[at * 2 + 1]!)
        taken = 0
      }
    }
    this.#refusedOptimisticCount += hashes.length - taken
    return taken
  }

  has(target: number, tier: Tier, hash: bigint): boolean {
    this.#hash[0] = hash
    return this.hasOne(target, checkTier(tier), this.#halves[0]!, this.#halves[1]!)
  }

  refCount(target: number, tier: Tier, hash: bigint): number {
    if (!this.has(target, tier, hash)) return 0
    return 1 + this.#pairs.extraCount(this.#holderOf(target), tier, BigInt.asUintN(64, hash))
  }

  blocksOf(target: number, tier: Tier): number {
    const holder = this.#holderOf(target)
    return holder === none ? 0 : this.#pairs.holders.pairsOf(holder, checkTier(tier))
  }

  match(hashes: BigUint64Array, overlaps: Uint32Array, options: MatchOptions): void {
    const { nowMs, levels } = checkMatchOptions(options)
    this.#expire(nowMs)
    const stride = Math.floor(overlaps.length / levels)
    if (stride < this.targetCount)
      throw new NativeBufferError(
        `overlaps has room for ${stride} targets at each of ${levels} levels: make it ${this.targetCount * levels} long or longer`,
      )
    overlaps.fill(0)
    this.#matchCount++
    if (hashes.length === 0 || this.#liveCount === 0) return
    const halves = halvesOf(hashes)
    const planes = [this.#pairs.planes[deviceTier]!, this.#pairs.planes[optimisticPlane]!].filter(isInUse)
    if (planes.length > 0) {
      this.#walk.begin()
      this.#walk.addAll(this.#liveCount)
      this.#walk.run(planes, halves, 0, overlaps)
    }
    for (let level = 1; level < levels; level++) {
      overlaps.copyWithin(level * stride, (level - 1) * stride, (level - 1) * stride + this.targetCount)
      const plane = this.#pairs.planes[level]!
      if (!isInUse(plane)) continue
      planes.push(plane)
      this.#matchFurther(level, planes, halves, overlaps.subarray(level * stride, (level + 1) * stride))
    }
  }

  /** As `match`, which is linear here, too. */
  matchLinear(hashes: BigUint64Array, overlaps: Uint32Array, options: MatchOptions): void {
    this.match(hashes, overlaps, options)
  }

  matchTokens(
    tokens: Uint32Array,
    blockSizeTokens: number,
    overlaps: Uint32Array,
    options: MatchOptions & { readonly parent?: bigint },
  ): BigUint64Array {
    const hashes = chainBlockHashes(tokens, blockSizeTokens, options.parent)
    this.match(hashes, overlaps, options)
    return hashes
  }

  sweep(slots: number): boolean {
    this.#pairs.sweep(slots)
    return this.#pairs.holders.deadCount > 0
  }

  stats(): PrefixIndexStats {
    return {
      pairs: this.#pairs.pairCount,
      deadPairs: this.#pairs.deadPairCount,
      blocks: this.#pairs.blockCount,
      optimisticBlocks: this.#optimistic.blockCount,
      refusedPairs: this.#pairs.refusedPairCount + this.#skippedPairCount,
      refusedOptimistic: this.#refusedOptimisticCount,
      sizeBytes: this.#pairs.sizeBytes + (this.targetCount + this.#optimistic.blockCount) * hashBytes,
      ledgerBytes: this.#ledger.usedBytes,
      matches: this.#matchCount,
      verifiedMatches: 0,
      mismatches: 0,
      targets: this.#liveCount,
      linearTargets: this.#liveCount,
    }
  }

  snapshot(): Uint8Array {
    return writeSnapshot((visitor) => this.#tell(visitor))
  }

  restore(snapshot: Uint8Array): void {
    if (this.targetCount > 0)
      throw new SnapshotError(
        'INFERA_NATIVE_NOT_EMPTY',
        'a snapshot is restored into an index that never had a target',
      )
    try {
      readSnapshot(snapshot, this.#options, {
        target: ({ target, isPrefixMonotone, holes }) => {
          this.#addTargetAt(target, isPrefixMonotone)
          this.#pairs.holders.setHoles(this.#holderOf(target), holes)
        },
        block: (tier, hash, targets, count) => this.#takeBlock(tier, hash, targets, count),
        extra: (tier, hash, target, count) => this.#takeExtra(tier, hash, target, count),
      })
    } catch (error) {
      this.#begin()
      throw error
    }
  }

  createView(options: CacheViewOptions): CacheView {
    return new TwinCacheView(this, this.#ledger, options)
  }

  /** An index that never had a target; memory of a former life is given back. */
  #begin(): void {
    this.#ledger.giveBack(this.#ledger.usedBytes)
    this.#pairs = new PairStore(this.#ledger, this.#options.pairsMax)
    this.#walk = new PrefixWalk(this.#pairs.holders, this.#pairs.sets)
    this.#optimistic = new OptimisticQueue(this.#ledger)
    this.#holderOfTarget = []
    this.#liveCount = 0
  }

  #holderOf(target: number): number {
    return this.#holderOfTarget[target] ?? none
  }

  #addTargetAt(target: number, isPrefixMonotone: boolean): void {
    const holder = this.#pairs.holders.create(target, isPrefixMonotone)
    if (holder === none) throw new NativeBoundError('no memory for one more target: raise bytesMax')
    while (this.#holderOfTarget.length <= target) this.#holderOfTarget.push(none)
    this.#holderOfTarget[target] = holder
    this.#liveCount++
  }

  #expire(nowMs: number): void {
    for (;;) {
      const run = this.#optimistic.shiftDue(nowMs)
      if (run === undefined) return
      const { holder, generation, halves } = run
      // A holder that died since, or lives again for someone else, has nothing to give back: the sweep has it or had it.
      if (this.#pairs.holders.targetOf(holder) === none) continue
      if (this.#pairs.holders.generationOf(holder) !== generation) continue
      for (let at = 0; at < halves.length; at += 2)
        this.#pairs.release(holder, optimisticPlane, halves[at]!, halves[at + 1]!)
    }
  }

  /**
   * Only targets with blocks in this tier can reach further than at the level before. They are walked from where the least
   * of them ended: a block that was evicted from the device alone is no hole here, and moves between tiers have no order.
   */
  #matchFurther(
    level: number,
    planes: readonly BlockPlane[],
    halves: Int32Array,
    overlaps: Uint32Array,
  ): void {
    this.#walk.begin()
    let start = halves.length / 2
    for (const [target, holder] of this.#holderOfTarget.entries()) {
      if (holder === none || this.#pairs.holders.pairsOf(holder, level) === 0) continue
      this.#walk.add(holder)
      start = Math.min(start, overlaps[target]!)
    }
    if (start < halves.length / 2) this.#walk.run(planes, halves, start, overlaps)
  }

  #tell(visitor: SnapshotVisitor): void {
    for (const [target, holder] of this.#holderOfTarget.entries()) {
      if (holder === none) continue
      const isPrefixMonotone = this.#pairs.holders.isMonotone(holder)
      visitor.target({ target, isPrefixMonotone, holes: this.#pairs.holders.holesOf(holder) })
    }
    for (const tier of tierNumbers)
      this.#pairs.forEachBlock(tier, (hash, targets, count) => visitor.block(tier, hash, targets, count))
    for (const [target, holder] of this.#holderOfTarget.entries()) {
      if (holder === none) continue
      for (const tier of tierNumbers)
        for (const [hash, count] of this.#pairs.holders.extrasOf(holder, tier)?.entries() ?? [])
          visitor.extra(tier, hash, target, count)
    }
  }

  #takeBlock(tier: number, hash: bigint, targets: Uint16Array, count: number): void {
    for (let place = 0; place < count; place++) {
      const added = this.#pairs.put(this.#holderOf(targets[place]!), tier, hash)
      if (added === 'present') throw badSnapshot('a block names a target twice')
      if (added === 'noMemory')
        throw new NativeBoundError('no memory for all of the snapshot: raise bytesMax')
    }
  }

  #takeExtra(tier: number, hash: bigint, target: number, count: number): void {
    const extras = this.#pairs.holders.extrasFor(this.#holderOf(target), tier)
    if (!this.has(target, tier as Tier, hash)) throw badSnapshot('references to a block that is not held')
    if (extras.get(hash) !== undefined) throw badSnapshot('references to one block are stated twice')
    if (!extras.set(hash, count))
      throw new NativeBoundError('no memory for all of the snapshot: raise bytesMax')
  }
}

function isInUse(plane: BlockPlane): boolean {
  return plane.blockCount > 0
}
