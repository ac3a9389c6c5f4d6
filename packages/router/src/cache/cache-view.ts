import { type Logger, silentLogger } from '@infera/fleet'
import { chainBlockHashes } from '../prompt/block-hash.js'
import type { KvEventCounts } from './event-counters.js'
import type { BlockRemoved, BlockStored, KvEvent } from './kv-event-decoder.js'
import type { PrefixIndex } from './prefix-index.js'
import { U64Table } from './u64-table.js'

/** Cache groups whose blocks are prefix blocks; a group of any other stated kind is none of ours. */
const indexedGroupKinds: ReadonlySet<string> = new Set([
  'full_attention',
  'mla_attention',
  'sink_full_attention',
])
/** A hybrid model has a handful of groups; numbers beyond this many are not remembered. */
const ignoredGroupsMax = 256

export interface CacheViewOptions {
  readonly index: PrefixIndex
  /** The block size that the worker registered, in tokens, > 0. */
  readonly blockSizeTokens: number
  /**
   * Most engine hashes remembered, and blocks that came without one beside them, > 0. At the bound further stored blocks
   * are refused and counted. Read at each block: a lower bound drops nothing, and refuses until enough was removed.
   */
  readonly engineHashesMax: number
  /** Shared by all views; counted up here. */
  readonly counts: KvEventCounts
  readonly logger?: Logger
  /** For log lines. */
  readonly workerId: string
  readonly rank: number
}

/**
 * What one rank of one worker holds, as told by its own events.
 *
 * Engine hashes are opaque: they name the parent of stored blocks and the blocks that are removed. What is indexed is
 * our own hash of the token ids, so engines may hash as they like. A block stays in view for as long as any engine hash
 * stands for it (copies under another salt or adapter have a hash of their own); the same hash stored twice counts once,
 * since engines differ in whether they report copies one by one, and a view should rather know too little than too much.
 */
export class CacheView {
  readonly #options: CacheViewOptions
  readonly #logger: Logger
  readonly #target: number
  /** Engine hash -> router hash, both as halves. */
  readonly #routerHashes = new U64Table()
  /** Where a hash is taken apart into halves, and put together from them. */
  readonly #hash = new BigUint64Array(1)
  readonly #halves = new Int32Array(this.#hash.buffer)
  /** Router hashes that further engine hashes stand for -> how many further ones. */
  readonly #furtherNames = new Map<bigint, number>()
  /** Router hashes in view that no engine hash stands for: they came with events whose hashes did not pair up. */
  readonly #nameless = new Set<bigint>()
  readonly #ignoredGroups = new Set<number>()
  readonly #saidOnce = new Set<string>()

  constructor(options: CacheViewOptions) {
    this.#options = options
    this.#logger = options.logger ?? silentLogger
    this.#target = options.index.addTarget()
  }

  /** This view's number in the index. */
  get target(): number {
    return this.#target
  }

  get blockSizeTokens(): number {
    return this.#options.blockSizeTokens
  }

  get blockCount(): number {
    return this.#options.index.blocksOf(this.#target)
  }

  get engineHashCount(): number {
    return this.#routerHashes.size
  }

  get sizeBytes(): number {
    return this.#routerHashes.sizeBytes
  }

  has(routerHash: bigint): boolean {
    return this.#options.index.has(this.#target, routerHash)
  }

  /** Events in the order in which they came. */
  apply(events: readonly KvEvent[]): void {
    for (const event of events) {
      if (event.type === 'blockStored') this.#store(event)
      else if (event.type === 'blockRemoved') this.#remove(event)
      else {
        this.#options.counts.clearedEvents += 1
        this.clear()
      }
    }
  }

  clear(): void {
    this.#options.index.clear(this.#target)
    this.#routerHashes.clear()
    this.#furtherNames.clear()
    this.#nameless.clear()
  }

  /** Takes the view out of the index. It must not be used afterwards. */
  close(): void {
    this.clear()
    this.#options.index.removeTarget(this.#target)
  }

  #store(event: BlockStored): void {
    const { counts, blockSizeTokens } = this.#options
    if (this.#isOtherGroup(event)) {
      counts.otherGroups += 1
      return
    }
    if (isOtherTier(event)) {
      counts.otherTiers += 1
      return
    }
    counts.storedEvents += 1
    const parent = event.parentHash === null ? 0n : this.#routerHashOf(event.parentHash)
    if (parent === undefined) {
      // Seen when events before these were lost or came before we listened. Guessing a parent would poison the chain.
      counts.unknownParents += 1
      return
    }
    if (event.blockSizeTokens !== null && event.blockSizeTokens !== blockSizeTokens) {
      counts.blockSizeMismatches += 1
      this.#warnOnce('events state another block size than the worker registered', {
        registered: blockSizeTokens,
        stated: event.blockSizeTokens,
      })
    }
    const hashes = chainBlockHashes(event.tokens, blockSizeTokens, parent)
    // The token span decides what is in view; which hash belongs to which block is only known when the counts agree.
    const isAligned = hashes.length === event.blockHashes.length
    if (!isAligned) {
      counts.misalignedEvents += 1
      this.#warnOnce('an event pairs its hashes with another number of blocks', {
        hashes: event.blockHashes.length,
        blocks: hashes.length,
      })
    }
    for (let block = 0; block < hashes.length; block++) {
      const engineHash = isAligned ? (event.blockHashes[block] as bigint) : undefined
      if (this.#hold(hashes[block] as bigint, engineHash)) continue
      counts.refusedBlocks += hashes.length - block
      this.#warnOnce('the cache index is full; further blocks are not indexed until some are removed', {
        engineHashesMax: this.#options.engineHashesMax,
      })
      return
    }
  }

  /** @returns false, with nothing changed, at one of the bounds */
  #hold(routerHash: bigint, engineHash: bigint | undefined): boolean {
    const { index, engineHashesMax } = this.#options
    const wasHeld = index.has(this.#target, routerHash)
    const isFull = this.#routerHashes.size + this.#nameless.size >= engineHashesMax
    if (engineHash === undefined) {
      if (!wasHeld && isFull) return false
      if (!index.add(this.#target, routerHash)) return false
      if (!wasHeld) this.#nameless.add(routerHash)
      return true
    }
    const known = this.#routerHashOf(engineHash)
    if (known === routerHash) return true
    if (known === undefined && isFull && !this.#nameless.has(routerHash)) return false
    if (!index.add(this.#target, routerHash)) return false
    if (known !== undefined) this.#unname(known)
    if (wasHeld && !this.#nameless.delete(routerHash)) {
      this.#furtherNames.set(routerHash, (this.#furtherNames.get(routerHash) ?? 0) + 1)
    }
    const slot = known === undefined ? this.#insert(engineHash) : this.#slotOf(engineHash)
    this.#hash[0] = routerHash
    this.#routerHashes.setValue(slot, this.#halves[0] as number, this.#halves[1] as number)
    return true
  }

  #remove(event: BlockRemoved): void {
    const { counts } = this.#options
    if (event.groupIndex !== null && this.#ignoredGroups.has(event.groupIndex)) {
      counts.otherGroups += 1
      return
    }
    if (isOtherTier(event)) {
      counts.otherTiers += 1
      return
    }
    counts.removedEvents += 1
    for (const engineHash of event.blockHashes) {
      const slot = this.#slotOf(engineHash)
      if (slot < 0) continue
      const routerHash = this.#valueAt(slot)
      this.#routerHashes.delete(slot)
      this.#unname(routerHash)
    }
    this.#routerHashes.shrink()
  }

  /** One engine hash less stands for this block; with the last one it leaves the view. */
  #unname(routerHash: bigint): void {
    const further = this.#furtherNames.get(routerHash)
    if (further === undefined) this.#options.index.remove(this.#target, routerHash)
    else if (further === 1) this.#furtherNames.delete(routerHash)
    else this.#furtherNames.set(routerHash, further - 1)
  }

  #isOtherGroup({ groupKind, groupIndex }: BlockStored): boolean {
    if (groupKind === null) return false
    const isIgnored = !indexedGroupKinds.has(groupKind)
    if (groupIndex !== null) {
      // Removals name the group but not its kind.
      if (!isIgnored) this.#ignoredGroups.delete(groupIndex)
      else if (this.#ignoredGroups.size < ignoredGroupsMax) this.#ignoredGroups.add(groupIndex)
    }
    if (isIgnored) this.#warnOnce('a cache group that holds no prefix blocks is not indexed', { groupKind })
    return isIgnored
  }

  #routerHashOf(engineHash: bigint): bigint | undefined {
    const slot = this.#slotOf(engineHash)
    return slot < 0 ? undefined : this.#valueAt(slot)
  }

  #slotOf(engineHash: bigint): number {
    this.#hash[0] = engineHash
    return this.#routerHashes.find(this.#halves[0] as number, this.#halves[1] as number)
  }

  #insert(engineHash: bigint): number {
    this.#hash[0] = engineHash
    return this.#routerHashes.insert(this.#halves[0] as number, this.#halves[1] as number)
  }

  #valueAt(slot: number): bigint {
    this.#halves[0] = this.#routerHashes.valueFirst(slot)
    this.#halves[1] = this.#routerHashes.valueSecond(slot)
    return this.#hash[0] as bigint
  }

  #warnOnce(message: string, fields: Record<string, unknown>): void {
    if (this.#saidOnce.has(message)) return
    this.#saidOnce.add(message)
    this.#logger.warn({ workerId: this.#options.workerId, rank: this.#options.rank, ...fields }, message)
  }
}

/** Engines that keep only one tier say nothing, or `GPU`. */
function isOtherTier(event: BlockStored | BlockRemoved): boolean {
  return event.isRemote || (event.medium !== null && event.medium.toUpperCase() !== 'GPU')
}
