import type { Sequence } from './sequence.js'

/** The constants of the step model; see `SimEngineOptions` for what they mean. */
export interface StepCosts {
  readonly prefillTokensPerSecond: number
  readonly kappaTokens: number
  readonly stepFixedMs: number
  readonly weightsReadMs: number
  readonly contextReadMs: number
  readonly speedFactor: number
}

/** `tokens` of a prompt computed in one step behind `context` tokens that were there before. */
export interface PromptChunk {
  readonly sequence: Sequence
  readonly context: number
  readonly tokens: number
}

/** What one step does. */
export interface StepPlan {
  /** Each computes one token and generates the next. */
  readonly decoding: readonly Sequence[]
  readonly chunks: readonly PromptChunk[]
}

/**
 * Simulated length of a step, ms: the fixed part, and the longer of computing and reading memory.
 * Computing is linear in prompt tokens and in their context; each decoding request counts as one token.
 */
export function stepDurationMs(plan: StepPlan, costs: StepCosts): number {
  let computeTokens = plan.decoding.length
  for (const { context, tokens } of plan.chunks) {
    computeTokens += tokens * (1 + (context + tokens / 2) / costs.kappaTokens)
  }
  let decodingContext = 0
  for (const sequence of plan.decoding) decodingContext += sequence.computed
  const computeMs = (computeTokens / costs.prefillTokensPerSecond) * 1000
  const memoryMs = costs.weightsReadMs + costs.contextReadMs * decodingContext
  return costs.stepFixedMs + Math.max(computeMs, memoryMs) / costs.speedFactor
}

/**
 * Whether a waiting request may start: its blocks that are not cached must fit, and one in a hundred blocks stays free for
 * those that are decoding, unless nothing runs at all.
 * @param available blocks that can be taken, the request's own idle hits left out
 */
export function fits(request: {
  readonly blocksNeeded: number
  readonly available: number
  readonly running: number
  readonly capacityBlocks: number
}): boolean {
  const reserve = request.running > 0 ? Math.floor(request.capacityBlocks / 100) : 0
  return request.available >= request.blocksNeeded + reserve
}
