import type { WorkerRecord } from './worker-record.js'

/** One thing a request can be sent to: a worker, or one data-parallel rank of it. */
export interface RouteTarget {
  readonly workerId: string
  /** Rank to pin with `X-Data-Parallel-Rank`; null: the worker as a whole, whose cache is rank 0. */
  readonly rank: number | null
  /** `worker_id`, or `worker_id#dp<rank>`. */
  readonly routeKey: string
}

/** The targets of one record in rank order (spec: a rank-multiplexed worker expands, any other is one target). */
export function expandTargets(record: WorkerRecord): RouteTarget[] {
  const workerId = record.worker_id
  const size = record.dp_size ?? 1
  if (record.dp_rank !== null || size <= 1) return [{ workerId, rank: null, routeKey: workerId }]
  return Array.from({ length: size }, (_, rank) => ({ workerId, rank, routeKey: `${workerId}#dp${rank}` }))
}
