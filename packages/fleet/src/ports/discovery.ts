import type { ServerRecord } from '../records/server-record.js'
import type { WorkerRecord } from '../records/worker-record.js'

/** One announced party of the fleet. */
export type FleetEntry =
  | { readonly kind: 'worker'; readonly record: WorkerRecord }
  | { readonly kind: 'server'; readonly record: ServerRecord }

export type FleetEntryKind = FleetEntry['kind']

/**
 * What a watcher sees, in order. A `snapshot` is the whole truth at its moment: it comes first, and again after
 * any gap, and whatever it does not name is gone. Between snapshots every change arrives once, in order.
 */
export type FleetChange =
  | { readonly type: 'snapshot'; readonly entries: readonly FleetEntry[] }
  | { readonly type: 'entryPut'; readonly entry: FleetEntry }
  | {
      readonly type: 'entryRemoved'
      readonly kind: FleetEntryKind
      readonly id: string
      readonly reason: 'deregistered' | 'leaseLost'
    }

/** A record that its owner keeps alive. Every method may be called in any state. */
export interface Registration {
  readonly kind: FleetEntryKind
  readonly id: string
  /** Resolves when the registry lost the record while the owner still wanted it; never rejects. Register again. */
  readonly lost: Promise<void>
  /** Replaces the record, same id. An equal record is not announced again. */
  update(record: WorkerRecord | ServerRecord): Promise<void>
  /** Marks a worker's record `draining`: no new work. Idempotent. */
  drain(): Promise<void>
  /** Takes the record away. Idempotent. */
  deregister(): Promise<void>
}

/** Who is in the fleet. Implemented by `EmbeddedDiscovery` and `StaticDiscovery`. */
export interface Discovery {
  /** `embedded`, `static`, ... for logs and `/v1/workers`. */
  readonly kind: string
  /** Whether what watchers were told is the present; false while the registry is away. Absent: it always is. */
  readonly isLive?: boolean
  /**
   * Announces a record. A second registration of the same kind and id takes the first one over: the older
   * `Registration` reports `lost`, and nothing it does afterwards touches the record.
   * @throws DiscoveryError `INFERA_FLEET_READ_ONLY` where the backend cannot register
   */
  register(entry: FleetEntry, options?: { signal?: AbortSignal }): Promise<Registration>
  /** Any number of watchers, each with its own snapshot and order. `break` or the signal ends one, without throwing. */
  watch(options?: { signal?: AbortSignal }): AsyncIterable<FleetChange>
  /** Ends every watch; registrations of this process are taken away. Idempotent. */
  close(): Promise<void>
}
