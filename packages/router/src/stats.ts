import type { KvEventCounts } from './cache/kv-event-counts.js'
import type { ParityCounts } from './parity/parity-watch.js'
import type { ViewTrustStatus } from './parity/view-trust.js'
import type { NoLocalityReason } from './scheduling/placement.js'
import type { Role } from './scheduling/policy.js'

/** What a router has counted since it was made, and how it stands. Plain data, a copy. */
export interface RouterStats {
  readonly requestsInFlight: number
  /** Picks that were acted upon, by target; those of workers that left are forgotten. */
  readonly picks: readonly { readonly role: Role; readonly routeKey: string; readonly count: number }[]
  /** Picks in which no cache took part, by reason. */
  readonly noLocality: Readonly<Partial<Record<NoLocalityReason, number>>>
  /** Prompts whose chat template failed, by model. */
  readonly templateFailures: Readonly<Record<string, number>>
  readonly kvEvents: Readonly<KvEventCounts>
  readonly parity: Readonly<ParityCounts>
  readonly index: {
    /** Which of two equals serves: C++, or TypeScript where that cannot be loaded. */
    readonly implementation: 'native' | 'twin'
    /** (KV block, target) pairs. */
    readonly pairs: number
    /** With all views. */
    readonly sizeBytes: number
    readonly refused: number
  }
  readonly targets: readonly {
    readonly routeKey: string
    readonly requestsInFlight: number
    /** Distinct prompt blocks in flight. */
    readonly activeBlocks: number
    /** KV blocks that it is believed to hold; null where nobody tells. */
    readonly viewBlocks: number | null
    /** How far that is believed; null where nobody tells. */
    readonly trust: ViewTrustStatus | null
  }[]
}

/** Counts picks. */
export class PickCounts {
  readonly #byTarget = new Map<string, { role: Role; routeKey: string; count: number }>()
  readonly #noLocality = new Map<NoLocalityReason, number>()

  add(pick: { role: Role; routeKey: string; noLocality: NoLocalityReason | null }): void {
    const key = `${pick.role} ${pick.routeKey}`
    const known = this.#byTarget.get(key)
    if (known) known.count += 1
    else this.#byTarget.set(key, { role: pick.role, routeKey: pick.routeKey, count: 1 })
    if (pick.noLocality !== null) {
      this.#noLocality.set(pick.noLocality, (this.#noLocality.get(pick.noLocality) ?? 0) + 1)
    }
  }

  /** The target left: its series would otherwise stay for ever. */
  forget(routeKey: string): void {
    for (const [key, pick] of this.#byTarget) if (pick.routeKey === routeKey) this.#byTarget.delete(key)
  }

  get picks(): RouterStats['picks'] {
    return [...this.#byTarget.values()].map((pick) => ({ ...pick }))
  }

  get noLocality(): RouterStats['noLocality'] {
    return Object.fromEntries(this.#noLocality)
  }
}
