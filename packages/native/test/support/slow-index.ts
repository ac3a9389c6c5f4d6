// The index as anybody would write it first: maps of maps, and every answer worked out anew. It knows bounds on pairs,
// targets and optimistic blocks, but none on memory.
import type { Tier } from '../../src/ports.js'

export interface SlowIndexOptions {
  readonly pairsMax: number
  readonly targetsMax: number
  readonly optimisticTtlMs: number
  readonly optimisticBlocksMax: number
}

/** References by tier and hash. */
type Holdings = readonly Map<bigint, number>[]

interface OptimisticBlock {
  readonly holdings: Holdings
  readonly hash: bigint
  readonly deadlineMs: number
}

const newHoldings = (): Holdings => [new Map(), new Map(), new Map(), new Map()]

export class SlowIndex {
  readonly targets: (Holdings | undefined)[] = []
  refusedPairs = 0
  refusedOptimistic = 0
  optimistic: OptimisticBlock[] = []
  #lastDeadlineMs = 0

  constructor(readonly options: SlowIndexOptions) {}

  get pairs(): number {
    return this.targets.flatMap((holdings) => holdings ?? []).reduce((sum, blocks) => sum + blocks.size, 0)
  }

  get liveCount(): number {
    return this.targets.filter((holdings) => holdings !== undefined).length
  }

  /** Undefined at the bound. */
  addTarget(): number | undefined {
    if (this.liveCount >= this.options.targetsMax) return undefined
    const free = this.targets.indexOf(undefined)
    const target = free < 0 ? this.targets.length : free
    this.targets[target] = newHoldings()
    return target
  }

  removeTarget(target: number): void {
    if (target < this.targets.length) this.targets[target] = undefined
  }

  clear(target: number): void {
    if (this.targets[target] !== undefined) this.targets[target] = newHoldings()
  }

  retainOne(target: number, tier: Tier, hash: bigint): boolean {
    const blocks = this.targets[target]?.[tier]
    if (blocks === undefined) return false
    if (!blocks.has(hash) && this.pairs >= this.options.pairsMax) {
      this.refusedPairs++
      return false
    }
    blocks.set(hash, (blocks.get(hash) ?? 0) + 1)
    return true
  }

  retain(target: number, tier: Tier, hashes: readonly bigint[]): number {
    if (this.targets[target] === undefined) return 0
    const refused = hashes.findIndex((hash) => !this.retainOne(target, tier, hash))
    if (refused < 0) return hashes.length
    this.refusedPairs += hashes.length - refused - 1
    return refused
  }

  releaseOne(target: number, tier: Tier, hash: bigint): boolean {
    const blocks = this.targets[target]?.[tier]
    const count = blocks?.get(hash)
    if (blocks === undefined || count === undefined) return false
    if (count > 1) blocks.set(hash, count - 1)
    else blocks.delete(hash)
    return count === 1
  }

  release(target: number, tier: Tier, hashes: readonly bigint[]): number {
    return hashes.filter((hash) => this.releaseOne(target, tier, hash)).length
  }

  addOptimistic(target: number, hashes: readonly bigint[], nowMs: number): number {
    this.expire(nowMs)
    const holdings = this.targets[target]
    if (holdings === undefined) return 0
    this.#lastDeadlineMs = Math.max(this.#lastDeadlineMs, nowMs + this.options.optimisticTtlMs)
    const room = this.options.optimisticBlocksMax - this.optimistic.length
    const taken = hashes.slice(0, Math.max(0, room))
    for (const hash of taken) this.optimistic.push({ holdings, hash, deadlineMs: this.#lastDeadlineMs })
    this.refusedOptimistic += hashes.length - taken.length
    return taken.length
  }

  expire(nowMs: number): void {
    this.optimistic = this.optimistic.filter((block) => block.deadlineMs > nowMs)
  }

  refCount(target: number, tier: Tier, hash: bigint): number {
    return this.targets[target]?.[tier]?.get(hash) ?? 0
  }

  overlap(target: number, level: number, hashes: readonly bigint[]): number {
    const holdings = this.targets[target]
    if (holdings === undefined) return 0
    const optimistic = new Set(
      this.optimistic.flatMap((block) => (block.holdings === holdings ? block.hash : [])),
    )
    const reached = holdings.slice(0, level + 1)
    const isPresent = (hash: bigint) => optimistic.has(hash) || reached.some((blocks) => blocks.has(hash))
    const miss = hashes.findIndex((hash) => !isPresent(hash))
    return miss < 0 ? hashes.length : miss
  }
}
