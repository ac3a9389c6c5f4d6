/** Where a worker keeps a block; a lower number is nearer to the GPU. */
export const tiers = { device: 0, host: 1, disk: 2, remote: 3 } as const
export type Tier = (typeof tiers)[keyof typeof tiers]

export interface PrefixIndexOptions {
  /** Most (block, target, tier) pairs of live targets, > 0. Default 2^28. */
  readonly pairsMax?: number
  /** Most heap bytes of the index and all its views, >= 65 536. Default 8 GiB. */
  readonly bytesMax?: number
  /** Most live targets, 1 to 32 768. Default 4096. */
  readonly targetsMax?: number
  /** How long an optimistic block counts, ms. Default 2000. */
  readonly optimisticTtlMs?: number
  /** Most optimistic blocks that wait to expire, 1 to 2^24. Default 2^18. */
  readonly optimisticBlocksMax?: number
  /** One match in so many is checked by the linear walk; 0 checks none. Default 100. */
  readonly verifyOneIn?: number
  /** Seeds the choice of those matches, a whole number >= 0. Default 1. */
  readonly seed?: number
}

export interface PrefixIndexStats {
  /** Of live targets, all tiers. */
  readonly pairs: number
  /** That wait for the sweep. */
  readonly deadPairs: number
  /** Distinct (block, tier), those that wait for the sweep included. */
  readonly blocks: number
  readonly optimisticBlocks: number
  /** Turned away at a bound. */
  readonly refusedPairs: number
  readonly refusedOptimistic: number
  /** Memory of the index, views not included. */
  readonly sizeBytes: number
  /** Memory of the index and its views, as held against `bytesMax`. */
  readonly ledgerBytes: number
  readonly matches: number
  readonly verifiedMatches: number
  /** Targets whose overlap by jumps differed from the linear one. */
  readonly mismatches: number
  readonly targets: number
  /** Live targets that are walked linearly now. */
  readonly linearTargets: number
}

export interface MatchOptions {
  /** A clock that does not go back, ms >= 0; decides which optimistic blocks still count. */
  readonly nowMs: number
  /** 1 to 4: for how many tiers overlaps are wanted. Default 1, the device alone. */
  readonly levels?: number
}

/**
 * Which target (a rank of a worker) holds which blocks in which tier, for prefix overlap. Implemented in C++ and, as oracle and
 * fallback, in TypeScript; `cpp/core/prefix_index.h` says what both do in every case. Target numbers are small; those of removed
 * targets are used again, and unknown ones are accepted everywhere and read as empty.
 */
export interface PrefixIndex {
  /** Above every target number ever given out. */
  readonly targetCount: number
  /**
   * @param isPrefixMonotone the target holds the parent of each block it holds, or says when it does not; others are never
   *   matched by jumps. Default false
   * @throws NativeError `INFERA_NATIVE_BOUND` at `targetsMax`, or without memory
   */
  addTarget(options?: { isPrefixMonotone?: boolean }): number
  /** Costs the same for one block and for a million. */
  removeTarget(target: number): void
  /** Forgets all blocks of a target, which stays. Costs the same for one block and for a million. */
  clear(target: number): void
  /** One reference more to each block, in order, up to the first that is refused. @returns how many were taken */
  retain(target: number, tier: Tier, hashes: BigUint64Array): number
  /** One reference less to each. @returns how many pairs ended with that */
  release(target: number, tier: Tier, hashes: BigUint64Array): number
  /** Blocks that a dispatched request will create, from its first; device blocks until they expire. @returns how many were taken */
  addOptimistic(target: number, hashes: BigUint64Array, nowMs: number): number
  has(target: number, tier: Tier, hash: bigint): boolean
  /** 0 where the block is not held. */
  refCount(target: number, tier: Tier, hash: bigint): number
  blocksOf(target: number, tier: Tier): number
  /**
   * How many leading blocks of a prompt each target holds without a hole: `overlaps[level * stride + target]`, where
   * `stride = overlaps.length / levels`; level t counts tier t and all faster ones. 0 for numbers that are not live.
   * @param overlaps overwritten; its stride must reach `targetCount`
   * @throws NativeError `INFERA_NATIVE_BUFFER` when it does not
   */
  match(hashes: BigUint64Array, overlaps: Uint32Array, options: MatchOptions): void
  /** The same by a linear walk for every target. For tests, and for who wants to compare. */
  matchLinear(hashes: BigUint64Array, overlaps: Uint32Array, options: MatchOptions): void
  /** Hashes a prompt and matches it in one call. @returns its block hashes, the caller's own */
  matchTokens(
    tokens: Uint32Array,
    blockSizeTokens: number,
    overlaps: Uint32Array,
    options: MatchOptions & { readonly parent?: bigint },
  ): BigUint64Array
  /** Visits up to `slots` slots for blocks of cleared and removed targets. @returns whether more waits */
  sweep(slots: number): boolean
  stats(): PrefixIndexStats
  /** Everything but optimistic blocks, with target numbers; versioned and checksummed. */
  snapshot(): Uint8Array
  /**
   * Fills an index that never had a target.
   * @throws NativeError `INFERA_NATIVE_BAD_SNAPSHOT`, `INFERA_NATIVE_NOT_EMPTY`, `INFERA_NATIVE_BOUND`; the index stays empty then
   */
  restore(snapshot: Uint8Array): void
  /** @throws NativeError `INFERA_NATIVE_BOUND` at `targetsMax`, or without memory; `INFERA_NATIVE_OPTIONS` */
  createView(options: CacheViewOptions): CacheView
  /** Names this index to other threads of the process: `openPrefixIndex(handle)`. The twin's works in its own thread alone. */
  readonly handle: string
}

export interface CacheViewOptions {
  /** As the worker registered it, > 0. */
  readonly blockSizeTokens: number
  /** Most engine hashes remembered, and blocks that came without one, > 0. Default 2^26. */
  readonly engineHashesMax?: number
  /** Tiers that are indexed; events of others are counted and passed over. Default all. */
  readonly tiers?: readonly Tier[]
  /** Whether an engine that stores a block twice means two copies, each with a removal of its own. Default true. */
  readonly countsCopies?: boolean
  /** Default true; see `PrefixIndex.addTarget`. */
  readonly isPrefixMonotone?: boolean
}

export interface CacheViewStats {
  /** Engine hashes that stand in some tier. */
  readonly names: number
  /** Engine hashes kept only because blocks after them are held. */
  readonly ghosts: number
  /** Blocks that came without an engine hash. */
  readonly nameless: number
  readonly holes: number
  readonly brokenLinks: number
  readonly sizeBytes: number
}

/**
 * What one rank of one worker holds, as told by its own events: `cpp/core/cache_view.h` states every decision.
 */
export interface CacheView {
  /** Its number in the index. */
  readonly target: number
  readonly blockSizeTokens: number
  /**
   * Decodes one payload as it came from the transport and applies it to the index; a malformed one changes nothing. Never throws
   * for its bytes.
   * @param counts what became of it is added here
   */
  apply(payload: Uint8Array, counts: KvEventCounts): void
  /** Forgets everything at once. Idempotent. */
  clear(): void
  /** Gives back a part of the memory that `clear` set aside; `apply` does so by itself. @returns whether more waits */
  freeStep(): boolean
  stats(): CacheViewStats
  /** Takes the target out of the index; afterwards nothing changes any more. Idempotent. */
  close(): void
}

/** What became of KV events. Sums; whoever owns one adds up as many views and batches as it likes. */
export interface KvEventCounts {
  /** Payloads that came, those of snapshots and the unreadable ones included. */
  batches: number
  /** Could not be read at all. */
  malformedBatches: number
  /** Events of tags that nobody here knows. */
  unknownTags: number
  /** Events with fields that cannot be used. */
  badEvents: number
  /** Of a tier and group that is indexed; likewise removed events. */
  storedEvents: number
  removedEvents: number
  clearedEvents: number
  /** Stored after a block that the view does not know; dropped. */
  unknownParents: number
  /** Of a tier that is not indexed, or of an unknown medium. */
  otherTiers: number
  /** Of cache groups whose blocks are no prefix blocks, as those of state-space layers. */
  otherGroups: number
  /** Stored with more or fewer hashes than full blocks. */
  misalignedEvents: number
  /** Stored with a block size other than the registered one. */
  blockSizeMismatches: number
  /** No room for these, nor for those behind them in their event. */
  refusedBlocks: number
  /** Blocks taken, duplicates included. */
  storedBlocks: number
  /** Hashes of removals that the view knew in that tier. */
  removedBlocks: number
  /** Hashes of removals that it did not; passed over. */
  unknownRemovals: number
  /** Hashes stored without tokens that the view does not know; passed over. */
  tokenlessUnknown: number
}
