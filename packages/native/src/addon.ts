// The functions of the addon as `cpp/binding` defines them. They check what they are given and throw plain errors whose
// `code` is one of ours; only the adapters beside this file call them.
import type { CacheViewStats, KvEventCounts, PrefixIndexStats } from './ports.js'

declare const indexBrand: unique symbol
declare const viewBrand: unique symbol

/** A type-tagged object of the addon; nothing else passes for one. */
export interface IndexWrap {
  readonly [indexBrand]: true
}
export interface ViewWrap {
  readonly [viewBrand]: true
}

export interface Addon {
  chainHashes(tokens: Uint32Array, blockSizeTokens: number, parent: bigint, hashes: BigUint64Array): void
  /** Both in UTF-8. */
  chainParent(lora: Uint8Array, salt: Uint8Array): bigint

  indexCreate(
    pairsMax: number,
    bytesMax: number,
    targetsMax: number,
    optimisticTtlMs: number,
    optimisticBlocksMax: number,
    verifyOneIn: number,
    seed: number,
  ): IndexWrap
  /** Undefined where no index of this process and this copy of the addon has the token. */
  indexOpen(token: string): IndexWrap | undefined
  indexToken(index: IndexWrap): string
  indexTargetCount(index: IndexWrap): number
  indexAddTarget(index: IndexWrap, isPrefixMonotone: boolean): number
  indexRemoveTarget(index: IndexWrap, target: number): void
  indexClear(index: IndexWrap, target: number): void
  indexRetain(index: IndexWrap, target: number, tier: number, hashes: BigUint64Array): number
  indexRelease(index: IndexWrap, target: number, tier: number, hashes: BigUint64Array): number
  indexAddOptimistic(index: IndexWrap, target: number, hashes: BigUint64Array, nowMs: number): number
  indexHas(index: IndexWrap, target: number, tier: number, hash: bigint): boolean
  indexRefCount(index: IndexWrap, target: number, tier: number, hash: bigint): number
  indexBlocksOf(index: IndexWrap, target: number, tier: number): number
  indexMatch(
    index: IndexWrap,
    hashes: BigUint64Array,
    overlaps: Uint32Array,
    nowMs: number,
    levels: number,
  ): void
  indexMatchLinear(
    index: IndexWrap,
    hashes: BigUint64Array,
    overlaps: Uint32Array,
    nowMs: number,
    levels: number,
  ): void
  indexMatchTokens(
    index: IndexWrap,
    tokens: Uint32Array,
    blockSizeTokens: number,
    parent: bigint,
    hashes: BigUint64Array,
    overlaps: Uint32Array,
    nowMs: number,
    levels: number,
  ): void
  indexSweep(index: IndexWrap, slots: number): boolean
  indexStats(index: IndexWrap): PrefixIndexStats
  /** How many bytes the snapshot has; it is written when `bytes` has room for that many. */
  indexWriteSnapshot(index: IndexWrap, bytes: Uint8Array): number
  indexReadSnapshot(index: IndexWrap, snapshot: Uint8Array): void

  viewCreate(
    index: IndexWrap,
    blockSizeTokens: number,
    engineHashesMax: number,
    tierBits: number,
    countsCopies: boolean,
    isPrefixMonotone: boolean,
  ): ViewWrap
  viewTarget(view: ViewWrap): number
  /** Overwrites `counts` with what became of this payload, in the order of `countNames`. */
  viewApply(view: ViewWrap, payload: Uint8Array, counts: Float64Array): void
  viewClear(view: ViewWrap): void
  viewFreeStep(view: ViewWrap): boolean
  viewStats(view: ViewWrap): CacheViewStats
  viewClose(view: ViewWrap): void
  readonly countNames: readonly (keyof KvEventCounts)[]
}
