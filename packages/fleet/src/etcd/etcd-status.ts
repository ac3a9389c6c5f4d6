/** How the watch of etcd does. */
export interface EtcdStatus {
  /** `live`: a watch is open; `failing`: what is known may be out of date, and `reason` says why. */
  readonly state: 'idle' | 'starting' | 'live' | 'failing'
  /** Whether the workers were listed at least once. */
  readonly isListed: boolean
  /** Failures since a watch was last open. */
  readonly failureCount: number
  readonly reason?: string
}
