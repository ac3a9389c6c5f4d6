import type { PolicyName, RouterSettings } from '../options.js'
import { KvAwarePolicy } from './kv-aware.js'
import { LeastLoadedPolicy } from './least-loaded.js'
import type { RoutingPolicy } from './policy.js'
import { RoundRobinPolicy } from './round-robin.js'

/** One of the policies that come along. */
export function createPolicy(name: PolicyName, settings: RouterSettings): RoutingPolicy {
  if (name === 'round-robin') return new RoundRobinPolicy()
  if (name === 'least-loaded') return new LeastLoadedPolicy()
  const { overlapWeight, prefillOverlapWeight, decodeOverlapWeight } = settings
  return new KvAwarePolicy({
    mixed: overlapWeight,
    prefill: prefillOverlapWeight ?? overlapWeight,
    decode: decodeOverlapWeight ?? overlapWeight,
  })
}
