import { expandTargets, parseWorkerRecord, type Random, type RouteTarget, seededRandom } from '@infera/fleet'
import type { CacheHints } from '../scheduling/cache-hints.js'
import { type Booking, LoadLedger } from '../scheduling/load-ledger.js'
import type { Candidate, PolicyQuestion, Role, RoutingPolicy } from '../scheduling/policy.js'

// A policy with its ledger and the caches that a test says, without a fleet around it. For tests only.

export const noHints: CacheHints = {
  retention: 'none',
  isExplicit: false,
  sessionId: null,
  isMultimodal: false,
}

export interface PickRequest {
  /** Hashes of the prompt's blocks. */
  readonly blocks: readonly bigint[]
  readonly role?: Role
  readonly hints?: Partial<CacheHints>
  readonly imageKeys?: readonly bigint[]
}

export class PolicyRig {
  readonly ledger = new LoadLedger()
  readonly #policy: RoutingPolicy
  readonly #random: Random
  readonly #targets: readonly RouteTarget[]
  readonly #held = new Map<string, Set<bigint>>()

  constructor(policy: RoutingPolicy, targets: readonly RouteTarget[], random = seededRandom(1)) {
    this.#policy = policy
    this.#targets = targets
    this.#random = random
  }

  /** The target's cache now holds these blocks too. */
  hold(routeKey: string, blocks: readonly bigint[]): void {
    const held = this.#held.get(routeKey) ?? new Set()
    this.#held.set(routeKey, held)
    for (const block of blocks) held.add(block)
  }

  /** Load of `count` blocks that no request of the test shares. */
  load(routeKey: string, count: number): Booking {
    const chain = BigUint64Array.from({ length: count }, (_, index) => (1n << 62n) + BigInt(index))
    return this.ledger.book(routeKey, [chain])
  }

  /** Decides and acts upon it; the request stays in flight until its booking is released. */
  pick(
    request: PickRequest,
    targets = this.#targets,
  ): { routeKey: string; total: number | undefined; booking: Booking } {
    const question = this.#question(request, targets)
    const choice = this.#policy.choose(question, this.#random)
    const { routeKey } = (question.candidates[choice.index] as Candidate).target
    const booking = this.ledger.book(routeKey, [BigUint64Array.from(request.blocks)])
    this.#policy.commit?.(question, choice)
    return { routeKey, total: choice.costs?.[choice.index]?.total, booking }
  }

  /** As `pick` of a request that has ended before the next one comes. */
  serve(request: PickRequest, targets = this.#targets): string {
    const { routeKey, booking } = this.pick(request, targets)
    booking.release()
    return routeKey
  }

  #question(
    { blocks, role = 'mixed', hints, imageKeys = [] }: PickRequest,
    targets: readonly RouteTarget[],
  ): PolicyQuestion {
    return {
      model: 'm',
      role,
      hints: { ...noHints, ...hints },
      imageKeys,
      candidates: targets.map((target) => {
        const held = this.#held.get(target.routeKey)
        const miss = blocks.findIndex((block) => !held?.has(block))
        return {
          target,
          requestBlocks: blocks.length,
          overlapBlocks: miss === -1 ? blocks.length : miss,
          ...loadOf(this.ledger, target.routeKey),
        }
      }),
    }
  }
}

/** Targets that are workers of one rank. */
export function workers(...ids: string[]): RouteTarget[] {
  return ids.map((workerId) => ({ workerId, rank: null, routeKey: workerId }))
}

/** The targets of a worker that serves several ranks behind one endpoint. */
export function ranksOf(workerId: string, size: number): RouteTarget[] {
  return expandTargets(
    parseWorkerRecord({ worker_id: workerId, url: 'http://w', model_name: 'm', dp_size: size }),
  )
}

/** Blocks `from` to `from + count - 1` of a numbering of the test's own; different numbers are different blocks. */
export function blocks(from: number, count: number): bigint[] {
  return Array.from({ length: count }, (_, index) => BigInt(from + index))
}

function loadOf(ledger: LoadLedger, routeKey: string) {
  const { requestsInFlight, activeBlocks } = ledger.of(routeKey)
  return { requestsInFlight, activeBlocks }
}
