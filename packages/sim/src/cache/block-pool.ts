import { invariant } from '../errors.js'
import { LruList } from './lru-list.js'

/** Bytes of content that each block carries. */
export const blockBytes = 16
/** The same in the 32-bit words that content is computed with. */
export const blockWords = blockBytes / 4

/** Learns what enters and leaves the prefix cache, in order, as it happens. */
export interface PoolListener {
  /** @param parent undefined at the head of a chain; @param tokens one block's, valid during the call only */
  blockStored(hash: bigint, parent: bigint | undefined, tokens: Uint32Array): void
  blockRemoved(hash: bigint): void
}

/** The prefix cache as it was at one moment. Whatever happens in the pool afterwards does not show here. */
export interface FrozenBlocks {
  readonly blockSizeTokens: number
  /** Cached blocks, each after its parent. */
  readonly parentsFirst: Uint32Array
  /** Parent's hash; undefined at the head of a chain. */
  parentOf(block: number): bigint | undefined
  hashOf(block: number): bigint
  tokensOf(block: number): Uint32Array
}

/**
 * The device's KV blocks. A block is *blank* (nobody's), *private* (held by one request, content not complete), or *cached*
 * (complete, found by its hash, held by any number of requests). Held blocks are pinned. A cached block that nobody holds
 * waits in LRU order for its next use or its eviction; chains are released tail first, so a cached block's parent is always
 * cached as well.
 */
export class BlockPool {
  readonly capacityBlocks: number
  readonly blockSizeTokens: number
  /** The arena: content of block b is bytes `b * blockBytes` onwards. */
  readonly bytes: Uint8Array
  /** The arena in words, `blockWords` for each block. */
  readonly words: Int32Array
  readonly #listener: PoolListener
  readonly #holders: Int32Array
  readonly #isCached: Uint8Array
  readonly #hashes: BigUint64Array
  /** Parent's hash of a cached block; only meaningful unless `#isHead`. */
  readonly #parents: BigUint64Array
  readonly #isHead: Uint8Array
  readonly #tokens: Uint32Array
  readonly #byHash = new Map<bigint, number>()
  readonly #blank: number[]
  readonly #idle: LruList

  constructor(options: { blocks: number; blockSizeTokens: number }, listener: PoolListener) {
    const { blocks, blockSizeTokens } = options
    this.capacityBlocks = blocks
    this.blockSizeTokens = blockSizeTokens
    this.#listener = listener
    this.words = new Int32Array(blocks * blockWords)
    this.bytes = new Uint8Array(this.words.buffer)
    this.#holders = new Int32Array(blocks)
    this.#isCached = new Uint8Array(blocks)
    this.#isHead = new Uint8Array(blocks)
    this.#hashes = new BigUint64Array(blocks)
    this.#parents = new BigUint64Array(blocks)
    this.#tokens = new Uint32Array(blocks * blockSizeTokens)
    this.#blank = Array.from({ length: blocks }, (_, index) => blocks - 1 - index)
    this.#idle = new LruList(blocks)
  }

  /** Blocks that can be taken now: blank ones, and cached ones that nobody holds. */
  get availableBlocks(): number {
    return this.#blank.length + this.#idle.size
  }

  /** Blocks that requests hold. */
  get usedBlocks(): number {
    return this.capacityBlocks - this.availableBlocks
  }

  get cachedBlocks(): number {
    return this.#byHash.size
  }

  /** Whether this cached block waits for use or eviction. */
  isIdle(block: number): boolean {
    return this.#idle.has(block)
  }

  /** The cached block of that hash. */
  find(hash: bigint): number | undefined {
    return this.#byHash.get(hash)
  }

  /** Cached blocks of the longest leading part of a chain, at most `limit` of them. They are not held yet. */
  findChain(hashes: readonly bigint[], limit: number): number[] {
    const found: number[] = []
    for (const hash of hashes) {
      if (found.length >= limit) break
      const block = this.#byHash.get(hash)
      if (block === undefined) break
      found.push(block)
    }
    return found
  }

  /** One more request holds this cached block. */
  hold(block: number): void {
    invariant(this.#isCached[block] === 1, `only cached blocks are shared, block ${block} is not`)
    this.#holders[block]!++
    this.#idle.remove(block)
  }

  /** A private block for one request, evicting the longest idle one when none is blank. Needs `availableBlocks` > 0. */
  take(): number {
    const block = this.#blank.pop() ?? this.#evict()
    this.#holders[block] = 1
    return block
  }

  /**
   * Makes a complete private block part of the cache. When another request cached the same chain meanwhile, that block is
   * held instead and the private copy is freed.
   * @returns the block to go on with
   */
  cache(block: number, hash: bigint, parent: bigint | undefined, tokens: Uint32Array): number {
    invariant(
      this.#isCached[block] === 0 && this.#holders[block] === 1,
      `block ${block} is private when it becomes complete`,
    )
    const twin = this.#byHash.get(hash)
    if (twin !== undefined) {
      this.hold(twin)
      this.#holders[block] = 0
      this.#blank.push(block)
      return twin
    }
    invariant(
      parent === undefined || this.#byHash.has(parent),
      `the parent of block ${block} is cached before it`,
    )
    this.#isCached[block] = 1
    this.#hashes[block] = hash
    this.#isHead[block] = parent === undefined ? 1 : 0
    this.#parents[block] = parent ?? 0n
    this.#tokens.set(tokens, block * this.blockSizeTokens)
    this.#byHash.set(hash, block)
    this.#listener.blockStored(hash, parent, tokens)
    return block
  }

  /** A request lets go of its chain. The tail becomes evictable first. */
  release(chain: readonly number[]): void {
    for (let index = chain.length - 1; index >= 0; index--) {
      const block = chain[index]!
      invariant(this.#holders[block]! > 0, `block ${block} is held when it is released`)
      const holders = --this.#holders[block]!
      if (holders > 0) continue
      if (this.#isCached[block] === 1) this.#idle.append(block)
      else this.#blank.push(block)
    }
  }

  /** A copy of the cache's books, in a few block copies of memory and one walk over the hashes. */
  freeze(): FrozenBlocks {
    const { blockSizeTokens } = this
    const hashes = this.#hashes.slice()
    const parents = this.#parents.slice()
    const isHead = this.#isHead.slice()
    const tokens = this.#tokens.slice()
    return {
      blockSizeTokens,
      // The map keeps the order of caching, and a block is cached after its parent and leaves before it.
      parentsFirst: Uint32Array.from(this.#byHash.values()),
      parentOf: (block) => (isHead[block] === 1 ? undefined : parents[block]),
      hashOf: (block) => hashes[block]!,
      tokensOf: (block) => tokens.subarray(block * blockSizeTokens, (block + 1) * blockSizeTokens),
    }
  }

  /** Calls back for each cached block, in no particular order. `tokens` is a view into the pool. */
  forEachCached(
    visit: (block: number, hash: bigint, parent: bigint | undefined, tokens: Uint32Array) => void,
  ): void {
    for (const [hash, block] of this.#byHash) visit(block, hash, this.parentOf(block), this.tokensOf(block))
  }

  /** Parent's hash of a cached block; undefined at the head of a chain. */
  parentOf(block: number): bigint | undefined {
    return this.#isHead[block] === 1 ? undefined : this.#parents[block]
  }

  hashOf(block: number): bigint {
    return this.#hashes[block]!
  }

  /** A view of a cached block's tokens. */
  tokensOf(block: number): Uint32Array {
    return this.#tokens.subarray(block * this.blockSizeTokens, (block + 1) * this.blockSizeTokens)
  }

  /** Tokens of every chain of cached blocks that no other one goes on from, each from its head. */
  cachedChains(): Uint32Array[] {
    const parents = new Set<bigint>()
    for (const block of this.#byHash.values()) {
      const parent = this.parentOf(block)
      if (parent !== undefined) parents.add(parent)
    }
    return [...this.#byHash]
      .filter(([hash]) => !parents.has(hash))
      .map(([, block]) => this.#tokensUpTo(block))
  }

  /** What its books say against themselves; empty when they agree. */
  bookFaults(): string[] {
    const faults: string[] = []
    let held = 0
    for (let block = 0; block < this.capacityBlocks; block++) {
      const holders = this.#holders[block]!
      const isCached = this.#isCached[block] === 1
      if (holders < 0) faults.push(`block ${block} has ${holders} holders`)
      if (holders > 0) held += 1
      if (isCached && this.#idle.has(block) === holders > 0)
        faults.push(`block ${block} is ${holders > 0 ? 'held and' : 'neither held nor'} idle`)
      if (!isCached) continue
      if (this.#byHash.get(this.hashOf(block)) !== block)
        faults.push(`block ${block} is cached and not found`)
      const parent = this.parentOf(block)
      if (parent !== undefined && !this.#byHash.has(parent))
        faults.push(`block ${block} is cached without its parent`)
    }
    if (held !== this.usedBlocks)
      faults.push(`${held} blocks are held and ${this.usedBlocks} are counted as used`)
    if (new Set(this.#blank).size !== this.#blank.length) faults.push('a block is blank twice')
    return faults
  }

  #tokensUpTo(block: number): Uint32Array {
    const chain: number[] = []
    for (let next: number | undefined = block; next !== undefined; ) {
      chain.push(next)
      const parent: bigint | undefined = this.parentOf(next)
      next = parent === undefined ? undefined : this.#byHash.get(parent)
    }
    const tokens = new Uint32Array(chain.length * this.blockSizeTokens)
    for (const [index, each] of chain.reverse().entries())
      tokens.set(this.tokensOf(each), index * this.blockSizeTokens)
    return tokens
  }

  #evict(): number {
    const block = this.#idle.oldest
    invariant(block !== undefined, 'a block is taken only when one is available')
    this.#idle.remove(block)
    this.#isCached[block] = 0
    const hash = this.hashOf(block)
    this.#byHash.delete(hash)
    this.#listener.blockRemoved(hash)
    return block
  }
}
