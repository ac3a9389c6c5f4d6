// A cache view as its numbered decisions read (`cpp/core/cache_view.h`), over the slow index: what every name and nameless
// block stands for, in plain maps.
import { encode } from '@msgpack/msgpack'
import { type CacheViewOptions, type KvEventCounts, type Tier, tiers } from '../../src/ports.js'
import { chainBlockHashes } from '../../src/twin/block-hash.js'
import { chainParentOf, markedParent, markOf } from '../../src/twin/chain-identity.js'
import { type ExtraKey, noIdentity, type RemovedEvent, type StoredEvent, type WireEvent } from './kv-wire.js'
import type { SlowIndex } from './slow-index.js'

interface Name {
  block: bigint
  /** By tier in which it stands: copies beyond the first. */
  readonly copies: Map<Tier, number>
}

const media = new Map<string | null, Tier>([
  [null, tiers.device],
  ['GPU', tiers.device],
  ['CPU', tiers.host],
  ['CPU_PINNED', tiers.host],
  ['CPU_TIER1', tiers.host],
  ['CPU_TIER2', tiers.host],
  ['DISK', tiers.disk],
  ['STORAGE', tiers.disk],
  ['EXTERNAL', tiers.remote],
])
const prefixKinds = ['full_attention', 'mla_attention', 'sink_full_attention']

export class SlowView {
  readonly names = new Map<bigint, Name>()
  /** Block -> tiers where no name stands for it. */
  readonly nameless = new Map<bigint, Set<Tier>>()
  /** Every block that ever was stored. */
  readonly seen = new Set<bigint>()
  readonly #ignoredGroups = new Set<number>()

  constructor(
    readonly index: SlowIndex,
    readonly target: number,
    readonly options: Required<CacheViewOptions>,
    readonly counts: KvEventCounts,
  ) {}

  apply(events: readonly WireEvent[]): void {
    this.counts.batches++
    for (const event of events) {
      if (event.type === 'stored') this.#store(event)
      else if (event.type === 'removed') this.#remove(event)
      else if (event.type === 'unknown') this.counts.unknownTags++
      else if (event.type === 'bad') this.counts.badEvents++
      else {
        this.counts.clearedEvents++
        this.clear()
      }
    }
  }

  clear(): void {
    this.index.clear(this.target)
    this.names.clear()
    this.nameless.clear()
  }

  #store(event: StoredEvent): void {
    const { groupKind, groupIndex, parent, hashes, blockSize } = event
    const { counts } = this
    if (groupKind !== null && groupIndex !== null) {
      if (prefixKinds.includes(groupKind)) this.#ignoredGroups.delete(groupIndex)
      else if (this.#ignoredGroups.size < 256) this.#ignoredGroups.add(groupIndex)
    }
    if (groupKind !== null && !prefixKinds.includes(groupKind)) {
      counts.otherGroups++
      return
    }
    const tier = this.#tierOf(event)
    if (tier === undefined) {
      counts.otherTiers++
      return
    }
    counts.storedEvents++
    if (event.tokens.length === 0 && hashes.length > 0) {
      for (const [place, hash] of hashes.entries()) {
        const name = this.names.get(hash)
        if (name === undefined) counts.tokenlessUnknown++
        else if (this.#hold(tier, name.block, hash)) counts.storedBlocks++
        else {
          counts.refusedBlocks += hashes.length - place
          return
        }
      }
      return
    }
    const { head, marks } = identityOf(event)
    const before = parent === null ? head : this.names.get(parent)?.block
    if (before === undefined) {
      counts.unknownParents++
      return
    }
    if (blockSize !== null && blockSize !== this.options.blockSizeTokens) counts.blockSizeMismatches++
    const blocks = chained(event.tokens, this.options.blockSizeTokens, before, marks)
    const isAligned = blocks.length === hashes.length
    if (!isAligned) counts.misalignedEvents++
    for (const [place, block] of blocks.entries()) {
      this.seen.add(block)
      const isHeld = isAligned ? this.#hold(tier, block, hashes[place]!) : this.#holdNameless(tier, block)
      if (!isHeld) {
        counts.refusedBlocks += blocks.length - place
        return
      }
      counts.storedBlocks++
    }
  }

  #hold(tier: Tier, block: bigint, hash: bigint): boolean {
    const name = this.names.get(hash)
    if (name?.block === block && name.copies.has(tier)) {
      const copies = name.copies.get(tier)!
      if (this.options.countsCopies) name.copies.set(tier, Math.min(0xffff, copies + 1))
      return true
    }
    if (name === undefined && !this.#hasRoom(tier, block)) return false
    const nameless = this.nameless.get(block)
    if (nameless?.has(tier)) {
      nameless.delete(tier)
      if (nameless.size === 0) this.nameless.delete(block)
    } else if (!this.index.retainOne(this.target, tier, block)) return false
    if (name?.block === block) name.copies.set(tier, 0)
    else {
      for (const each of name?.copies.keys() ?? []) this.index.releaseOne(this.target, each, name!.block)
      this.names.set(hash, { block, copies: new Map([[tier, 0]]) })
    }
    return true
  }

  #holdNameless(tier: Tier, block: bigint): boolean {
    if (this.index.refCount(this.target, tier, block) > 0) return true
    if (!this.nameless.has(block) && !this.#hasRoom(tier, block)) return false
    if (!this.index.retainOne(this.target, tier, block)) return false
    this.nameless.set(block, (this.nameless.get(block) ?? new Set()).add(tier))
    return true
  }

  #hasRoom(tier: Tier, block: bigint): boolean {
    const replaced = this.nameless.get(block)
    return (
      this.names.size + this.nameless.size < this.options.engineHashesMax ||
      (replaced?.size === 1 && replaced.has(tier))
    )
  }

  #remove(event: RemovedEvent): void {
    const { counts } = this
    if (event.groupIndex !== null && this.#ignoredGroups.has(event.groupIndex)) {
      counts.otherGroups++
      return
    }
    const tier = this.#tierOf(event)
    if (tier === undefined) {
      counts.otherTiers++
      return
    }
    counts.removedEvents++
    for (const hash of event.hashes) {
      const name = this.names.get(hash)
      const copies = name?.copies.get(tier)
      if (name === undefined || copies === undefined) {
        counts.unknownRemovals++
        continue
      }
      counts.removedBlocks++
      if (copies > 0) name.copies.set(tier, copies - 1)
      else {
        this.index.releaseOne(this.target, tier, name.block)
        name.copies.delete(tier)
        if (name.copies.size === 0) this.names.delete(hash)
      }
    }
  }

  #tierOf({ medium, remoteBy }: StoredEvent | RemovedEvent): Tier | undefined {
    const tier = remoteBy === null ? media.get(medium?.toUpperCase() ?? null) : tiers.remote
    return tier !== undefined && this.options.tiers.includes(tier) ? tier : undefined
  }
}

const encoder = new TextEncoder()

/** Where the chain of an event begins, and a mark per list of its extra keys. */
function identityOf({ parent, identity = noIdentity }: StoredEvent): { head: bigint; marks: bigint[] } {
  const { lora, loraId, extraKeys } = identity
  let salt = identity.salt ?? ''
  const isAdapter = (key: ExtraKey | undefined) =>
    typeof key === 'string'
      ? key === lora && lora !== ''
      : key !== undefined && key === loraId && loraId !== 0
  const marks = (extraKeys ?? []).map((keys, place) => {
    if (keys === null) return 0n
    const rest = isAdapter(keys[0]) ? keys.slice(1) : keys
    const [only] = rest
    if (place === 0 && parent === null && rest.length === 1 && typeof only === 'string') {
      if (salt === '') salt = only
      if (only === salt) return 0n
    }
    return rest.length === 0 ? 0n : markOf(encode(keys, { useBigInt64: true }))
  })
  const adapter = lora || (loraId ? `#${loraId}` : '')
  return { head: chainParentOf(encoder.encode(adapter), encoder.encode(salt)), marks }
}

function chained(
  tokens: readonly number[],
  size: number,
  parent: bigint,
  marks: readonly bigint[],
): bigint[] {
  const count = Math.floor(tokens.length / size)
  const areInStep = marks.length === count
  const hashes: bigint[] = []
  for (let block = 0; block < count; block++) {
    const here = areInStep ? [marks[block]!] : block === 0 ? marks : []
    const from = here.reduce(markedParent, hashes.at(-1) ?? parent)
    hashes.push(
      ...chainBlockHashes(Uint32Array.from(tokens.slice(block * size, (block + 1) * size)), size, from),
    )
  }
  return hashes
}
