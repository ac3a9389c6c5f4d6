import type { Random, RouteTarget } from '@infera/fleet'
import type { CacheHints } from './cache-hints.js'

/** What a request is for: a whole answer, or one leg of a split one. */
export type Role = 'mixed' | 'prefill' | 'decode'

/** One target that may take a request, as it stands now. */
export interface Candidate {
  readonly target: RouteTarget
  /** Full KV blocks of the prompt under this worker's block size; 0 when the prompt is not known as tokens. */
  readonly requestBlocks: number
  /** How many of them, from the first on, this target holds, as far as its view is believed. */
  readonly overlapBlocks: number
  /** Distinct blocks of requests in flight on this target. */
  readonly activeBlocks: number
  readonly requestsInFlight: number
}

export interface PolicyQuestion {
  readonly model: string
  readonly role: Role
  /** In registration order, ranks of a worker ascending; never empty. */
  readonly candidates: readonly Candidate[]
  readonly hints: CacheHints
  /** Hashes of the images that the request carries, in order, repeated ones as often as they occur. */
  readonly imageKeys: readonly bigint[]
}

/** What a candidate would cost, in KV blocks of work; lower is better. The parts add up to `total`. */
export interface Cost {
  readonly total: number
  readonly text: number
  readonly image: number
  readonly load: number
}

export interface PolicyChoice {
  /** Position in the question's candidates. */
  readonly index: number
  /** By candidate; absent where the policy does not think in costs. */
  readonly costs?: readonly Cost[]
}

/** How a target is chosen. Everything is synchronous, so what `choose` saw still holds when `commit` is called. */
export interface RoutingPolicy {
  readonly name: string
  /** Whether `choose` looks at overlap or blocks; where it does not, prompts need not be tokenized. */
  readonly usesCache: boolean
  /** Decides. Must not change anything: it is also asked by those who only want to know. */
  choose(question: PolicyQuestion, random: Random): PolicyChoice
  /** The choice is acted upon. Called at most once for an answer of `choose`, before the request is sent. */
  commit?(question: PolicyQuestion, choice: PolicyChoice): void
  /** The target left the fleet, or its process is a new one. */
  forget?(routeKey: string): void
}
