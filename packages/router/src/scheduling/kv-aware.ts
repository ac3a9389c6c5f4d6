import { ImageAffinity } from './image-affinity.js'
import { pickFirstLowest } from './picker.js'
import type { PolicyChoice, PolicyQuestion, RoutingPolicy } from './policy.js'
import { RecentLoad } from './recent-load.js'
import { kvAwareCost, type OverlapWeights, requestWeights } from './scorer.js'

/**
 * The reference's cost formula: blocks to compute, weighted, plus blocks of load in flight and lately given. The cheapest
 * target wins; of equally dear ones the less loaded; of equally loaded ones the first.
 */
export class KvAwarePolicy implements RoutingPolicy {
  readonly name = 'kv-aware'
  readonly usesCache = true
  readonly #weights: OverlapWeights
  readonly #recent = new RecentLoad()
  readonly #images = new ImageAffinity()

  /** @param weights read for each decision */
  constructor(weights: OverlapWeights) {
    this.#weights = weights
  }

  choose(question: PolicyQuestion): PolicyChoice {
    const weights = requestWeights(this.#weights, question.role, question.hints)
    const costs = question.candidates.map((candidate) =>
      kvAwareCost(weights, {
        ...candidate,
        imageCount: question.imageKeys.length,
        imagesHeld: this.#images.countHeld(candidate.target.routeKey, question.imageKeys),
        recentBlocks: this.#recent.of(candidate.target.routeKey),
      }),
    )
    return { index: pickFirstLowest(costs.map(({ total, load }) => [total, load])), costs }
  }

  commit(question: PolicyQuestion, choice: PolicyChoice): void {
    const winner = question.candidates[choice.index]
    if (!winner) return
    this.#recent.charge(winner.target.routeKey, winner.requestBlocks, winner.overlapBlocks)
    this.#images.record(winner.target.routeKey, question.imageKeys)
  }

  /** Blocks lately given to a target. */
  recentBlocks(routeKey: string): number {
    return this.#recent.of(routeKey)
  }

  forget(routeKey: string): void {
    this.#recent.forget(routeKey)
    this.#images.forget(routeKey)
  }
}
