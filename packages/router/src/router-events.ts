import type { WorkerRecord } from '@infera/fleet'
import type { DoubtCause, TrustState } from './parity/view-trust.js'
import type { CacheState } from './registry/kv-follower.js'

export type RouterState = 'idle' | 'open' | 'draining' | 'closed'

/**
 * Why a worker is no longer in the fleet. `unlisted`: the registry came back without it; `replaced`: another process took over
 * its id, which is announced as joined next.
 */
export type WorkerLeftReason = 'deregistered' | 'leaseLost' | 'unlisted' | 'replaced'

/** What a router tells of the fleet. Plain data. */
export type FleetEvent =
  | {
      readonly type: 'workerJoined'
      readonly workerId: string
      readonly record: WorkerRecord
      readonly cacheState: CacheState
    }
  | {
      /** Its record is another one, as when it begins to drain. */
      readonly type: 'workerChanged'
      readonly workerId: string
      readonly record: WorkerRecord
      readonly previous: WorkerRecord
    }
  | { readonly type: 'workerLeft'; readonly workerId: string; readonly reason: WorkerLeftReason }
  | {
      readonly type: 'cacheViewChanged'
      readonly workerId: string
      readonly state: CacheState
      readonly previous: CacheState
    }
  | {
      /** What its engine reports of its cache use makes a target's view more or less believed. */
      readonly type: 'viewTrustChanged'
      readonly routeKey: string
      readonly state: TrustState
      readonly cause: DoubtCause | null
      readonly previous: TrustState
    }

type OwnEvent =
  | { readonly type: 'stateChanged'; readonly state: RouterState; readonly previous: RouterState }
  | {
      readonly type: 'optionsChanged'
      /** Of the options whose value is another one now. */
      readonly names: readonly string[]
    }

export type UntimedEvent = FleetEvent | OwnEvent

/** What a router tells, with the time by its own clock, ms. */
export type RouterEvent = UntimedEvent & { readonly atMs: number }
