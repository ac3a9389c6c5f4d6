import type { Clock, Random, RouteTarget, WorkerRecord } from '@infera/fleet'
import type { CacheView, PrefixIndex } from '@infera/native'
import { invariant } from '../invariant.js'
import type { PreparedRequest } from '../request/prepared-request.js'
import { eligibleWorkers, type SkippedWorker } from './filter.js'
import type { LoadLedger } from './load-ledger.js'
import type { NoLocalityReason, Placement } from './placement.js'
import type { Candidate, PolicyChoice, PolicyQuestion, RoutingPolicy } from './policy.js'

const noHashes: readonly BigUint64Array[] = []

/** What placing needs to know of a worker. */
export interface PlaceableWorker {
  readonly record: WorkerRecord
  readonly targets: readonly PlaceableTarget[]
}

export interface PlaceableTarget {
  readonly target: RouteTarget
  /** What it holds; undefined when nobody tells. */
  readonly view: CacheView | undefined
}

/** The decision needs the request's prompt, which nobody has read yet. */
export const promptNeeded = Symbol('prompt needed')

/** A placement with what is needed to act upon it. */
export interface Plan<W extends PlaceableWorker> {
  readonly placement: Placement
  readonly worker: W
  /** Chained hashes of each prompt under the chosen worker's block size, to be booked. */
  readonly chains: readonly BigUint64Array[]
  /** Tells the policy that the choice is acted upon. */
  commit(): void
}

export interface PlacerOptions<W extends PlaceableWorker> {
  /** Workers that serve a model, in registration order. */
  readonly workersOf: (model: string) => readonly W[]
  readonly index: PrefixIndex
  readonly ledger: LoadLedger
  /** The policy that decides now; asked once for each placement. */
  readonly policy: () => RoutingPolicy
  readonly transportKinds: ReadonlySet<string>
  /** What a block that a target's view claims counts for, 0 to 1. */
  readonly trustOf: (routeKey: string) => number
  readonly clock: Clock
  readonly random: Random
}

/** Reads the fleet and decides. Nothing here waits or changes anything. */
export class Placer<W extends PlaceableWorker> {
  readonly #options: PlacerOptions<W>
  #overlaps = new Uint32Array(0)

  constructor(options: PlacerOptions<W>) {
    this.#options = options
  }

  /**
   * @param options.tried ids of workers that failed this request
   * @param options.isExplained the prompt is looked at even where the decision does not need it
   * @returns no plan, but the reasons, when nobody may take the request; `promptNeeded` to be asked again once it is read
   */
  place(
    request: PreparedRequest,
    { tried, isExplained = false }: { tried: ReadonlySet<string>; isExplained?: boolean },
  ): Plan<W> | { readonly skipped: readonly SkippedWorker[] } | typeof promptNeeded {
    const { workersOf, random, transportKinds } = this.#options
    const policy = this.#options.policy()
    const filter = { role: request.role, tried, transportKinds }
    const { eligible, skipped } = eligibleWorkers(workersOf(request.servedModel), filter)
    const options = eligible.flatMap((worker) => worker.targets.map((target) => ({ worker, ...target })))
    if (options.length === 0) return { skipped }

    const unneeded = isExplained ? undefined : whyUnneeded(policy, request, options.length)
    if (unneeded === undefined && !request.isPromptRead) return promptNeeded
    const seen = unneeded === undefined ? this.#look(request, options) : undefined
    const question: PolicyQuestion = {
      model: request.model,
      role: request.role,
      candidates: options.map(({ target }, index) => this.#candidate(target, seen?.found[index])),
      // Read by those policies that care; parsed on first use.
      get hints() {
        return request.hints
      },
      get imageKeys() {
        return request.imageKeys
      },
    }
    const choice = policy.choose(question, random)
    const worker = options[choice.index]?.worker
    invariant(worker !== undefined, `policy '${policy.name}' chooses one of its candidates`)
    return {
      placement: placementOf(request, policy.name, question, choice, {
        noLocality: unneeded ?? seen?.noLocality ?? null,
        blockSizeTokens: worker.record.kv_block_size,
        claimed: options.map((_, index) => seen?.found[index]?.claimedBlocks ?? 0),
        skipped,
      }),
      worker,
      chains: seen?.found[choice.index]?.hashes ?? noHashes,
      commit: () => policy.commit?.(question, choice),
    }
  }

  #candidate(target: RouteTarget, found: Found | undefined): Candidate {
    const load = this.#options.ledger.of(target.routeKey)
    const claimedBlocks = found?.claimedBlocks ?? 0
    return {
      target,
      requestBlocks: found ? countOf(found.hashes) : 0,
      overlapBlocks: Math.floor(claimedBlocks * this.#options.trustOf(target.routeKey)),
      activeBlocks: load.activeBlocks,
      requestsInFlight: load.requestsInFlight,
    }
  }

  /** The prompt in each candidate's blocks, and how many of them it holds: one pass over the index per block size. */
  #look(
    request: PreparedRequest,
    options: readonly (PlaceableTarget & { worker: W })[],
  ): { found: Found[]; noLocality: NoLocalityReason | null } {
    const sizes = new Set(options.map(({ worker }) => worker.record.kv_block_size ?? 0))
    sizes.delete(0)
    const found: Found[] = options.map(() => ({ hashes: noHashes, claimedBlocks: 0 }))
    let longest = noHashes
    for (const size of sizes) {
      const hashes = request.hashes(size)
      if (countOf(hashes) > countOf(longest)) longest = hashes
      for (const [index, { worker }] of options.entries()) {
        if (worker.record.kv_block_size === size) found[index] = { hashes, claimedBlocks: 0 }
      }
      for (const each of hashes) {
        const overlaps = this.#match(each)
        for (const [index, { worker, view }] of options.entries()) {
          if (worker.record.kv_block_size !== size || !view) continue
          ;(found[index] as Found).claimedBlocks += overlaps[view.target] ?? 0
        }
      }
    }
    // A worker without a block size has to compute the prompt like any other; counted as nothing it would look free.
    for (const [index, { worker }] of options.entries()) {
      if (!worker.record.kv_block_size) found[index] = { hashes: longest, claimedBlocks: 0 }
    }
    return { found, noLocality: this.#whyBlind(request, options, countOf(longest), sizes.size) }
  }

  #whyBlind(
    request: PreparedRequest,
    options: readonly PlaceableTarget[],
    blocksMax: number,
    sizeCount: number,
  ): NoLocalityReason | null {
    if (request.hints.isMultimodal) return 'multimodal'
    const tokenless = request.tokenlessReason
    if (tokenless !== undefined) return tokenless
    if (sizeCount === 0) return 'no-block-size'
    if (blocksMax === 0) return 'too-short'
    const viewed = options.filter(({ view }) => view !== undefined)
    if (viewed.length === 0) return 'no-cache-view'
    return viewed.some(({ target }) => this.#options.trustOf(target.routeKey) > 0) ? null : 'view-unsure'
  }

  #match(hashes: BigUint64Array): Uint32Array {
    const { index, clock } = this.#options
    const { targetCount } = index
    if (this.#overlaps.length < targetCount) this.#overlaps = new Uint32Array(targetCount * 2)
    index.match(hashes, this.#overlaps, { nowMs: clock.now() })
    return this.#overlaps
  }
}

interface Found {
  /** Of each prompt. */
  readonly hashes: readonly BigUint64Array[]
  claimedBlocks: number
}

function countOf(hashes: readonly BigUint64Array[]): number {
  let count = 0
  for (const { length } of hashes) count += length
  return count
}

function whyUnneeded(
  policy: RoutingPolicy,
  request: PreparedRequest,
  candidateCount: number,
): NoLocalityReason | undefined {
  if (!policy.usesCache) return 'policy'
  // A lone candidate is not chosen. Its prompts are looked at all the same until one went well.
  const isLone = candidateCount === 1 && request.prompts.isProven && !request.isPromptRead
  return isLone ? 'single-candidate' : undefined
}

function placementOf(
  request: PreparedRequest,
  policy: string,
  { model, role, candidates }: PolicyQuestion,
  choice: PolicyChoice,
  facts: Pick<Placement, 'noLocality' | 'blockSizeTokens' | 'skipped'> & {
    /** By candidate. */
    readonly claimed: readonly number[]
  },
): Placement {
  const { claimed, ...rest } = facts
  const chosen = candidates[choice.index] as Candidate
  return {
    model,
    role,
    policy,
    workerId: chosen.target.workerId,
    rank: chosen.target.rank,
    routeKey: chosen.target.routeKey,
    requestBlocks: chosen.requestBlocks,
    overlapBlocks: chosen.overlapBlocks,
    claimedBlocks: claimed[choice.index] ?? 0,
    promptTokens: request.promptTokens ?? null,
    ...rest,
    candidates: candidates.map(({ target, ...counts }, index) => ({
      workerId: target.workerId,
      rank: target.rank,
      routeKey: target.routeKey,
      ...counts,
      claimedBlocks: claimed[index] ?? 0,
      cost: choice.costs?.[index] ?? null,
    })),
  }
}
