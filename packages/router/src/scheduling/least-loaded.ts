import type { Random } from '@infera/fleet'
import { pickAnyLowest } from './picker.js'
import type { PolicyChoice, PolicyQuestion, RoutingPolicy } from './policy.js'

/** Fewest requests in flight, then fewest blocks in flight; chance decides between equals, so that ties spread. */
export class LeastLoadedPolicy implements RoutingPolicy {
  readonly name = 'least-loaded'
  readonly usesCache = false

  choose({ candidates }: PolicyQuestion, random: Random): PolicyChoice {
    const keys = candidates.map(({ requestsInFlight, activeBlocks }) => [requestsInFlight, activeBlocks])
    return { index: pickAnyLowest(keys, random) }
  }
}
