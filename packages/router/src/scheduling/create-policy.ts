import type { SettingsSource } from '../live-options.js'
import type { PolicyName } from '../options.js'
import { KvAwarePolicy } from './kv-aware.js'
import { LeastLoadedPolicy } from './least-loaded.js'
import type { RoutingPolicy } from './policy.js'
import { RoundRobinPolicy } from './round-robin.js'

/**
 * One of the policies that come along.
 * @param live read for each decision, so that other weights count from the next one on
 */
export function createPolicy(
  name: PolicyName,
  live: SettingsSource<'overlapWeight' | 'prefillOverlapWeight' | 'decodeOverlapWeight'>,
): RoutingPolicy {
  if (name === 'round-robin') return new RoundRobinPolicy()
  if (name === 'least-loaded') return new LeastLoadedPolicy()
  return new KvAwarePolicy({
    get mixed() {
      return live.settings.overlapWeight
    },
    get prefill() {
      return live.settings.prefillOverlapWeight ?? live.settings.overlapWeight
    },
    get decode() {
      return live.settings.decodeOverlapWeight ?? live.settings.overlapWeight
    },
  })
}
