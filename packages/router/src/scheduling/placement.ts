import type { TokenlessReason } from '../request/prompt-book.js'
import type { SkippedWorker } from './filter.js'
import type { Cost, Role } from './policy.js'

/**
 * Why the caches of workers did not enter a decision:
 * `policy` looks at load only; `single-candidate` had no choice; `multimodal`: an image hides the text before it;
 * `too-short` is less than one block of any candidate; `no-block-size` and `no-cache-view`: no candidate registered a
 * block size, or none has told what it holds; `view-unsure`: what they tell has proved wrong; `tokenizer-busy`: more long
 * prompts wait for a thread than may.
 */
export type NoLocalityReason =
  | TokenlessReason
  | 'policy'
  | 'single-candidate'
  | 'multimodal'
  | 'too-short'
  | 'no-block-size'
  | 'no-cache-view'
  | 'view-unsure'

/** One target that could have taken the request, as it stood when the decision was made. */
export interface CandidateReport {
  readonly workerId: string
  readonly rank: number | null
  readonly routeKey: string
  readonly requestBlocks: number
  readonly overlapBlocks: number
  /** As its view says; `overlapBlocks` is what of that is believed. */
  readonly claimedBlocks: number
  readonly activeBlocks: number
  readonly requestsInFlight: number
  /** Null where the policy does not think in costs. */
  readonly cost: Cost | null
}

/** Where a request goes, and why. */
export interface Placement {
  readonly model: string
  readonly role: Role
  readonly policy: string
  readonly workerId: string
  /** Data-parallel rank to be pinned; null: the worker as a whole. */
  readonly rank: number | null
  readonly routeKey: string
  /** Full KV blocks of the prompt under the chosen worker's block size; 0 when the prompt is not known as tokens. */
  readonly requestBlocks: number
  /** How many of them, from the first on, the chosen target holds, as far as its view is believed. */
  readonly overlapBlocks: number
  /** How many its view says. */
  readonly claimedBlocks: number
  /** Tokens of the prompt, of all of them in a batch; null when it is not known as tokens. */
  readonly promptTokens: number | null
  /** The chosen worker's; null where it registered none. */
  readonly blockSizeTokens: number | null
  /** Null when cache locality entered the decision, be it with no block held by anybody. */
  readonly noLocality: NoLocalityReason | null
  readonly candidates: readonly CandidateReport[]
  /** Workers of the model that were not considered. */
  readonly skipped: readonly SkippedWorker[]
}
