// The TypeScript twin of `cpp/core/cache_view.h`, whose numbered decisions hold here, but the last: holes only speed up
// how C++ searches, and nothing here jumps over any. Invariant: for each (name, tier) that stands, the index has one
// reference of that tier to the name's block; for each (nameless block, tier) one, too.

import { type CacheViewSettings, viewSettings } from '../options.js'
import {
  type CacheView,
  type CacheViewOptions,
  type CacheViewStats,
  type KvEventCounts,
  type Tier,
  tiers,
} from '../ports.js'
import { chainBlockHashes } from './block-hash.js'
import { markedParent } from './chain-identity.js'
import { halvesOf } from './halves.js'
import { type BlockRemoved, type BlockStored, decodeKvBatch } from './kv-event-decoder.js'
import type { MemoryLedger } from './memory-ledger.js'
import type { TwinPrefixIndex } from './prefix-index.js'
import { SideMap } from './side-map.js'
import { U64Table } from './u64-table.js'

const tierNumbers: readonly Tier[] = Object.values(tiers)
/** A hybrid model has a handful of groups; numbers beyond this many are not remembered. */
const ignoredGroupsMax = 256
const copiesMax = 0xffff
const none = -1

export class TwinCacheView implements CacheView {
  readonly target: number
  readonly #index: TwinPrefixIndex
  readonly #options: CacheViewSettings
  readonly #isIndexed: readonly boolean[]
  /** By tier: engine hash -> our hash, both as halves. */
  readonly #names: readonly U64Table[]
  /** By tier: engine hash -> further removals that it takes to end it there. */
  readonly #copies: readonly SideMap[]
  /** Our hashes of blocks that came without an engine hash -> tiers, a bit each. */
  readonly #nameless: SideMap
  readonly #ignoredGroups = new Set<number>()
  readonly #hash = new BigUint64Array(1)
  readonly #halves = new Int32Array(this.#hash.buffer)
  /** Engine hashes that stand in some tier. */
  #nameCount = 0
  #isClosed = false

  /** @throws InvalidNativeOptionsError, NativeBoundError */
  constructor(index: TwinPrefixIndex, ledger: MemoryLedger, options: CacheViewOptions) {
    this.#options = viewSettings(options)
    this.#index = index
    this.#isIndexed = tierNumbers.map((tier) => this.#options.tiers.includes(tier))
    this.#names = tierNumbers.map(() => new U64Table(ledger))
    this.#copies = tierNumbers.map(() => new SideMap(ledger))
    this.#nameless = new SideMap(ledger)
    // Whatever the options promise: a snapshot must not, since holes are not counted here.
    this.target = index.addTarget({ isPrefixMonotone: false })
  }

  get blockSizeTokens(): number {
    return this.#options.blockSizeTokens
  }

  apply(payload: Uint8Array, counts: KvEventCounts): void {
    if (this.#isClosed) return
    counts.batches++
    const { events, unknownTagCount, badEventCount, isMalformed } = decodeKvBatch(payload)
    if (isMalformed) counts.malformedBatches++
    counts.unknownTags += unknownTagCount
    counts.badEvents += badEventCount
    for (const event of events) {
      if (event.type === 'blockStored') this.#store(event, counts)
      else if (event.type === 'blockRemoved') this.#remove(event, counts)
      else {
        counts.clearedEvents++
        this.clear()
      }
    }
  }

  clear(): void {
    this.#index.clear(this.target)
    for (const names of this.#names) names.clear()
    for (const copies of this.#copies) copies.clear()
    this.#nameless.clear()
    this.#nameCount = 0
  }

  /** Nothing waits: the collector gives memory back. */
  freeStep(): boolean {
    return false
  }

  stats(): CacheViewStats {
    let sizeBytes = this.#nameless.sizeBytes
    for (const names of this.#names) sizeBytes += names.sizeBytes
    for (const copies of this.#copies) sizeBytes += copies.sizeBytes
    return {
      names: this.#nameCount,
      ghosts: 0,
      nameless: this.#nameless.size,
      holes: 0,
      brokenLinks: 0,
      sizeBytes,
    }
  }

  close(): void {
    if (this.#isClosed) return
    this.clear()
    this.#isClosed = true
    this.#index.removeTarget(this.target)
  }

  #store(event: BlockStored, counts: KvEventCounts): void {
    const { tier, tokens, parentHash, blockHashes } = event
    if (this.#isOtherGroup(event)) {
      counts.otherGroups++
      return
    }
    if (tier === null || !this.#isIndexed[tier]) {
      counts.otherTiers++
      return
    }
    counts.storedEvents++
    if (tokens.length === 0 && blockHashes.length > 0) {
      this.#storeTokenless(tier, blockHashes, counts)
      return
    }
    const parent = parentHash === null ? event.chainParent : this.#blockNamed(parentHash)
    if (parent === undefined) {
      // Seen when events before these were lost or came before we listened. Guessing a parent would poison the chain.
      counts.unknownParents++
      return
    }
    const { blockSizeTokens } = this.#options
    if (event.blockSizeTokens !== null && event.blockSizeTokens !== blockSizeTokens)
      counts.blockSizeMismatches++
    const chain = halvesOf(chainEvent(event, blockSizeTokens, parent))
    const blockCount = chain.length / 2
    // The token span decides what is in view; which hash belongs to which block is only known when the counts agree.
    const isAligned = blockCount === blockHashes.length
    if (!isAligned) counts.misalignedEvents++
    const names = halvesOf(blockHashes)
    for (let at = 0; at < chain.length; at += 2) {
      const isHeld = isAligned
        ? this.#hold(tier, chain[at]!, chain[at + 1]!, names[at]!, names[at + 1]!)
        : this.#holdNameless(tier, chain[at]!, chain[at + 1]!)
      if (isHeld) continue
      counts.storedBlocks += at / 2
      counts.refusedBlocks += blockCount - at / 2
      return
    }
    counts.storedBlocks += blockCount
  }

  /** Hashes without tokens move names that are known into the event's tier, too. */
  #storeTokenless(tier: Tier, blockHashes: BigUint64Array, counts: KvEventCounts): void {
    const names = halvesOf(blockHashes)
    for (let at = 0; at < names.length; at += 2) {
      const [first, second] = [names[at]!, names[at + 1]!]
      const home = this.#tierOfName(first, second)
      if (home === none) {
        counts.tokenlessUnknown++
        continue
      }
      const table = this.#names[home]!
      const slot = table.find(first, second)
      if (!this.#hold(tier, table.valueFirst(slot), table.valueSecond(slot), first, second)) {
        counts.refusedBlocks += (names.length - at) / 2
        return
      }
      counts.storedBlocks++
    }
  }

  /** A name stands for a block in a tier from now on. False, with nothing changed, when that is refused. */
  #hold(tier: Tier, first: number, second: number, nameFirst: number, nameSecond: number): boolean {
    const names = this.#names[tier]!
    let slot = names.find(nameFirst, nameSecond)
    const home = slot >= 0 ? tier : this.#tierOfName(nameFirst, nameSecond)
    let isOther = false
    let formerFirst = 0
    let formerSecond = 0
    if (home === none) {
      if (!this.#hasRoomFor(tier, first, second)) return false
    } else {
      const table = this.#names[home]!
      const known = slot >= 0 ? slot : table.find(nameFirst, nameSecond)
      formerFirst = table.valueFirst(known)
      formerSecond = table.valueSecond(known)
      isOther = formerFirst !== first || formerSecond !== second
      if (slot >= 0 && !isOther) {
        if (this.#options.countsCopies) this.#addCopy(tier, this.#joined(nameFirst, nameSecond))
        return true
      }
    }
    const wasNameless = this.#takeNameless(tier, first, second)
    if (!wasNameless && !this.#index.retainOne(this.target, tier, first, second)) return false
    if (slot < 0) {
      slot = names.insert(nameFirst, nameSecond)
      if (slot < 0) {
        this.#giveBack(tier, first, second, wasNameless)
        return false
      }
      names.setValue(slot, first, second)
    }
    // Other tokens under a name that was used before: what stood behind it is gone, in whichever tier.
    if (isOther) this.#replace(tier, nameFirst, nameSecond, first, second, formerFirst, formerSecond)
    if (home === none) this.#nameCount++
    return true
  }

  /** Lets go of a name's former block; afterwards it stands for the new one, which has its reference, in `tier` alone. */
  #replace(
    tier: Tier,
    nameFirst: number,
    nameSecond: number,
    first: number,
    second: number,
    formerFirst: number,
    formerSecond: number,
  ): void {
    const name = this.#joined(nameFirst, nameSecond)
    for (const each of tierNumbers) {
      this.#copies[each]!.delete(name)
      const table = this.#names[each]!
      const slot = table.find(nameFirst, nameSecond)
      if (slot < 0) continue
      const isFormer = table.valueFirst(slot) === formerFirst && table.valueSecond(slot) === formerSecond
      if (isFormer) this.#index.releaseOne(this.target, each, formerFirst, formerSecond)
      if (each === tier) table.setValue(slot, first, second)
      else {
        table.delete(slot)
        table.shrink()
      }
    }
  }

  #holdNameless(tier: Tier, first: number, second: number): boolean {
    if (this.#index.hasOne(this.target, tier, first, second)) return true
    const hash = this.#joined(first, second)
    const tierBits = this.#nameless.get(hash)
    if (tierBits === undefined && !this.#hasRoomFor(tier, first, second)) return false
    if (!this.#index.retainOne(this.target, tier, first, second)) return false
    if (this.#nameless.set(hash, (tierBits ?? 0) | (1 << tier))) return true
    this.#index.releaseOne(this.target, tier, first, second)
    return false
  }

  /** Room for a name of this block that stands nowhere yet: its own, or that of a nameless block which it replaces. */
  #hasRoomFor(tier: Tier, first: number, second: number): boolean {
    if (this.#nameCount + this.#nameless.size < this.#options.engineHashesMax) return true
    return this.#nameless.get(this.#joined(first, second)) === 1 << tier
  }

  /** Takes over the reference that the block has without a name in this tier; false when it has none. */
  #takeNameless(tier: Tier, first: number, second: number): boolean {
    if (this.#nameless.size === 0) return false
    const hash = this.#joined(first, second)
    const tierBits = this.#nameless.get(hash) ?? 0
    if ((tierBits & (1 << tier)) === 0) return false
    if (tierBits === 1 << tier) this.#nameless.delete(hash)
    else this.#nameless.set(hash, tierBits & ~(1 << tier))
    return true
  }

  #giveBack(tier: Tier, first: number, second: number, wasNameless: boolean): void {
    const hash = this.#joined(first, second)
    if (wasNameless && this.#nameless.set(hash, (this.#nameless.get(hash) ?? 0) | (1 << tier))) return
    this.#index.releaseOne(this.target, tier, first, second)
  }

  #addCopy(tier: Tier, name: bigint): void {
    const copies = this.#copies[tier]!
    const count = copies.get(name) ?? 0
    // Without memory the copy is not counted: the view then knows too little, never too much.
    if (count < copiesMax) copies.set(name, count + 1)
  }

  #remove({ tier, groupIndex, blockHashes }: BlockRemoved, counts: KvEventCounts): void {
    if (groupIndex !== null && this.#ignoredGroups.has(groupIndex)) {
      counts.otherGroups++
      return
    }
    if (tier === null || !this.#isIndexed[tier]) {
      counts.otherTiers++
      return
    }
    counts.removedEvents++
    const names = halvesOf(blockHashes)
    for (let at = 0; at < names.length; at += 2) {
      if (this.#drop(tier, names[at]!, names[at + 1]!)) counts.removedBlocks++
      else counts.unknownRemovals++
    }
    this.#names[tier]!.shrink()
  }

  /** False when the name does not stand in the tier. */
  #drop(tier: Tier, nameFirst: number, nameSecond: number): boolean {
    const names = this.#names[tier]!
    const slot = names.find(nameFirst, nameSecond)
    if (slot < 0) return false
    const copies = this.#copies[tier]!
    if (copies.size > 0) {
      const name = this.#joined(nameFirst, nameSecond)
      const count = copies.get(name)
      if (count !== undefined) {
        if (count === 1) copies.delete(name)
        else copies.set(name, count - 1)
        return true
      }
    }
    this.#index.releaseOne(this.target, tier, names.valueFirst(slot), names.valueSecond(slot))
    names.delete(slot)
    if (this.#tierOfName(nameFirst, nameSecond) === none) this.#nameCount--
    return true
  }

  #isOtherGroup({ groupKind, groupIndex }: BlockStored): boolean {
    if (groupKind === 'unstated') return false
    const isOther = groupKind === 'other'
    if (groupIndex !== null) {
      // Removals name the group but not its kind.
      if (!isOther) this.#ignoredGroups.delete(groupIndex)
      else if (this.#ignoredGroups.size < ignoredGroupsMax) this.#ignoredGroups.add(groupIndex)
    }
    return isOther
  }

  /** The first tier in which a name stands, or none. */
  #tierOfName(nameFirst: number, nameSecond: number): Tier | typeof none {
    for (const tier of tierNumbers) {
      const names = this.#names[tier]!
      if (names.size > 0 && names.find(nameFirst, nameSecond) >= 0) return tier
    }
    return none
  }

  /** Our hash of the block that an engine hash stands for in any tier. */
  #blockNamed(name: bigint): bigint | undefined {
    this.#hash[0] = name
    const tier = this.#tierOfName(this.#halves[0]!, this.#halves[1]!)
    if (tier === none) return undefined
    const names = this.#names[tier]!
    const slot = names.find(this.#halves[0]!, this.#halves[1]!)
    return this.#joined(names.valueFirst(slot), names.valueSecond(slot))
  }

  #joined(first: number, second: number): bigint {
    this.#halves[0] = first
    this.#halves[1] = second
    return this.#hash[0]!
  }
}

/** Our hashes of an event's full blocks. */
function chainEvent({ tokens, marks }: BlockStored, size: number, parent: bigint): BigUint64Array {
  const blockCount = Math.floor(tokens.length / size)
  if (marks.length !== blockCount) {
    // None, or it is not known of which blocks.
    return chainBlockHashes(tokens, size, marks.reduce(markedParent, parent))
  }
  const hashes = new BigUint64Array(blockCount)
  let last = parent
  for (let block = 0; block < blockCount; block++) {
    const [hash] = chainBlockHashes(
      tokens.subarray(block * size, (block + 1) * size),
      size,
      markedParent(last, marks[block]!),
    )
    hashes[block] = last = hash!
  }
  return hashes
}
