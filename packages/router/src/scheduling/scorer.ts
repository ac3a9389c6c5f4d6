import type { CacheHints } from './cache-hints.js'
import type { Cost, Role } from './policy.js'

/** Factors of the overlap weight for what the client says of its cache use. */
const longRetentionFactor = 2
const noRetentionFactor = 0.1
/** KV blocks that an image stands for. */
const imageBlocks = 48

/** Cost of one prompt block that a target does not hold, by role, in blocks of load; each >= 0. */
export interface OverlapWeights {
  readonly mixed: number
  readonly prefill: number
  readonly decode: number
}

/** Weights of what a request would have to compute anew. An image hides the text before it, so text counts for nothing then. */
export function requestWeights(
  weights: OverlapWeights,
  role: Role,
  hints: CacheHints,
): { readonly text: number; readonly image: number } {
  const weight = weights[role] * retentionFactor(hints)
  return { text: hints.isMultimodal ? 0 : weight, image: weight * imageBlocks }
}

/**
 * Work and waiting that a target would have with this request, in KV blocks; lower is better.
 * @param facts counts >= 0, `overlapBlocks` <= `requestBlocks`, `imagesHeld` <= `imageCount`
 * @returns finite, >= 0; equal costs are told apart by the picker, never here
 */
export function kvAwareCost(
  weights: { readonly text: number; readonly image: number },
  facts: {
    readonly requestBlocks: number
    readonly overlapBlocks: number
    readonly imageCount: number
    readonly imagesHeld: number
    readonly activeBlocks: number
    readonly recentBlocks: number
  },
): Cost {
  const text = weights.text * (facts.requestBlocks - facts.overlapBlocks)
  const image = weights.image * (facts.imageCount - facts.imagesHeld)
  const load = facts.activeBlocks + facts.recentBlocks
  return { total: text + image + load, text, image, load }
}

function retentionFactor({ retention, isExplicit }: CacheHints): number {
  if (retention === 'long') return longRetentionFactor
  return retention === 'none' && isExplicit ? noRetentionFactor : 1
}
