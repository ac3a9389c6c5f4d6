import { type PolicyName, type RouterSettings, type RouterUpdate, resolveUpdate } from './options.js'
import { createPolicy } from './scheduling/create-policy.js'
import type { RoutingPolicy } from './scheduling/policy.js'

/** Where a part reads settings, each time it needs one: a copy of its own would miss a change. */
export interface SettingsSource<K extends keyof RouterSettings = keyof RouterSettings> {
  readonly settings: Pick<RouterSettings, K>
}

/** The options that are in force; the only place that holds them. */
export class LiveOptions implements SettingsSource {
  #settings: RouterSettings
  #policy: RoutingPolicy
  /** The policy's name where it is one of those that come along. */
  #ownName: PolicyName | undefined

  constructor(settings: RouterSettings, policy: PolicyName | RoutingPolicy) {
    this.#settings = settings
    this.#policy = this.#policyOf(policy)
  }

  /** A change replaces the object as a whole, so who holds one keeps what was in force then. */
  get settings(): RouterSettings {
    return this.#settings
  }

  get policy(): RoutingPolicy {
    return this.#policy
  }

  /**
   * Changes all that is named, or nothing.
   * @returns names of the options whose value is another one now
   * @throws InvalidRouterOptionsError
   */
  update(update: RouterUpdate): string[] {
    const { settings, policy } = resolveUpdate(this.#settings, update)
    const before: Readonly<Record<string, unknown>> = this.#settings
    const names = Object.entries(settings)
      .filter(([name, value]) => !Object.is(before[name], value))
      .map(([name]) => name)
    this.#settings = settings
    // By the name that it has already a policy stays the same one, and keeps what it remembers.
    if (policy === undefined || policy === this.#policy || policy === this.#ownName) return names
    this.#policy = this.#policyOf(policy)
    return [...names, 'policy']
  }

  #policyOf(policy: PolicyName | RoutingPolicy): RoutingPolicy {
    this.#ownName = typeof policy === 'string' ? policy : undefined
    return typeof policy === 'string' ? createPolicy(policy, this) : policy
  }
}
