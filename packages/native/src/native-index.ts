import type { Addon, IndexWrap } from './addon.js'
import { blockCount } from './block-hash.js'
import { NativeBoundError, translated } from './errors.js'
import { NativeCacheView } from './native-view.js'
import { type PrefixIndexSettings, viewSettings } from './options.js'
import type {
  CacheView,
  CacheViewOptions,
  MatchOptions,
  PrefixIndex,
  PrefixIndexStats,
  Tier,
} from './ports.js'

/** More than any index has. */
const slotsMax = 2 ** 32 - 1

/** The adapter of an index of the addon. Each method is one call; what the addon throws is translated here. */
export class NativePrefixIndex implements PrefixIndex {
  readonly #addon: Addon
  readonly #index: IndexWrap

  private constructor(addon: Addon, index: IndexWrap) {
    this.#addon = addon
    this.#index = index
  }

  static create(addon: Addon, settings: PrefixIndexSettings): NativePrefixIndex {
    const { pairsMax, bytesMax, targetsMax, optimisticTtlMs, optimisticBlocksMax, verifyOneIn, seed } =
      settings
    const index = attempt(() =>
      addon.indexCreate(
        pairsMax,
        bytesMax,
        targetsMax,
        optimisticTtlMs,
        optimisticBlocksMax,
        verifyOneIn,
        seed,
      ),
    )
    return new NativePrefixIndex(addon, index)
  }

  /** Undefined where nobody holds an index of this name. */
  static open(addon: Addon, handle: string): NativePrefixIndex | undefined {
    const index = addon.indexOpen(handle)
    return index === undefined ? undefined : new NativePrefixIndex(addon, index)
  }

  get handle(): string {
    return this.#addon.indexToken(this.#index)
  }

  get targetCount(): number {
    return this.#addon.indexTargetCount(this.#index)
  }

  addTarget({ isPrefixMonotone = false }: { isPrefixMonotone?: boolean } = {}): number {
    return attempt(() => this.#addon.indexAddTarget(this.#index, isPrefixMonotone))
  }

  removeTarget(target: number): void {
    this.#addon.indexRemoveTarget(this.#index, target)
  }

  clear(target: number): void {
    this.#addon.indexClear(this.#index, target)
  }

  retain(target: number, tier: Tier, hashes: BigUint64Array): number {
    return attempt(() => this.#addon.indexRetain(this.#index, target, tier, hashes))
  }

  release(target: number, tier: Tier, hashes: BigUint64Array): number {
    return attempt(() => this.#addon.indexRelease(this.#index, target, tier, hashes))
  }

  addOptimistic(target: number, hashes: BigUint64Array, nowMs: number): number {
    return attempt(() => this.#addon.indexAddOptimistic(this.#index, target, hashes, nowMs))
  }

  has(target: number, tier: Tier, hash: bigint): boolean {
    return attempt(() => this.#addon.indexHas(this.#index, target, tier, hash))
  }

  refCount(target: number, tier: Tier, hash: bigint): number {
    return attempt(() => this.#addon.indexRefCount(this.#index, target, tier, hash))
  }

  blocksOf(target: number, tier: Tier): number {
    return attempt(() => this.#addon.indexBlocksOf(this.#index, target, tier))
  }

  // The methods of the request path name their error handling in full: a closure per call would be garbage per request.

  match(hashes: BigUint64Array, overlaps: Uint32Array, { nowMs, levels = 1 }: MatchOptions): void {
    try {
      this.#addon.indexMatch(this.#index, hashes, overlaps, nowMs, levels)
    } catch (error) {
      throw translated(error)
    }
  }

  matchLinear(hashes: BigUint64Array, overlaps: Uint32Array, { nowMs, levels = 1 }: MatchOptions): void {
    try {
      this.#addon.indexMatchLinear(this.#index, hashes, overlaps, nowMs, levels)
    } catch (error) {
      throw translated(error)
    }
  }

  matchTokens(
    tokens: Uint32Array,
    blockSizeTokens: number,
    overlaps: Uint32Array,
    { nowMs, levels = 1, parent = 0n }: MatchOptions & { readonly parent?: bigint },
  ): BigUint64Array {
    const hashes = new BigUint64Array(blockCount(tokens, blockSizeTokens))
    // Without a full block nothing is hashed, as in the twin, whatever the block size.
    const size = hashes.length === 0 ? 0 : blockSizeTokens
    try {
      this.#addon.indexMatchTokens(this.#index, tokens, size, parent, hashes, overlaps, nowMs, levels)
    } catch (error) {
      throw translated(error)
    }
    return hashes
  }

  sweep(slots: number): boolean {
    return attempt(() => this.#addon.indexSweep(this.#index, Math.min(Math.max(slots, 0), slotsMax)))
  }

  stats(): PrefixIndexStats {
    return this.#addon.indexStats(this.#index)
  }

  snapshot(): Uint8Array {
    // Another thread may add blocks between asking for the size and writing, so the size is asked again until it fits.
    let bytes = new Uint8Array(0)
    for (;;) {
      const room = bytes
      const sizeBytes = attempt(() => this.#addon.indexWriteSnapshot(this.#index, room))
      if (sizeBytes <= bytes.length) return bytes.length === sizeBytes ? bytes : bytes.slice(0, sizeBytes)
      // A sixteenth more than was asked for, once another thread has been seen to write.
      bytes = snapshotRoom(bytes.length === 0 ? sizeBytes : sizeBytes + Math.ceil(sizeBytes / 16))
    }
  }

  restore(snapshot: Uint8Array): void {
    attempt(() => this.#addon.indexReadSnapshot(this.#index, snapshot))
  }

  createView(options: CacheViewOptions): CacheView {
    return new NativeCacheView(this.#addon, this.#index, viewSettings(options))
  }
}

function attempt<T>(call: () => T): T {
  try {
    return call()
  } catch (error) {
    throw translated(error)
  }
}

function snapshotRoom(sizeBytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(sizeBytes)
  } catch (cause) {
    throw new NativeBoundError(`no memory for a snapshot of ${sizeBytes} bytes`, { cause })
  }
}
