import type { WorkerRecord } from '@infera/fleet'
import type { Role } from './policy.js'

/** Why a worker of the right model is no candidate. */
export type SkipReason = 'not-active' | 'other-role' | 'no-transport' | 'tried'

export interface SkippedWorker {
  readonly workerId: string
  readonly reason: SkipReason
}

/**
 * Who may take a request: the active ones of the role that can be reached and were not tried.
 * @param workers those that serve the model, in registration order, which is kept
 */
export function eligibleWorkers<W extends { readonly record: WorkerRecord }>(
  workers: readonly W[],
  {
    role,
    tried,
    transportKinds,
  }: { role: Role; tried: ReadonlySet<string>; transportKinds: ReadonlySet<string> },
): { eligible: W[]; skipped: SkippedWorker[] } {
  const eligible: W[] = []
  const skipped: SkippedWorker[] = []
  for (const worker of workers) {
    const { record } = worker
    const reason =
      record.status !== 'active'
        ? 'not-active'
        : record.disagg_mode !== role
          ? 'other-role'
          : !transportKinds.has(record.request_transport)
            ? 'no-transport'
            : tried.has(record.worker_id)
              ? 'tried'
              : undefined
    if (reason === undefined) eligible.push(worker)
    else skipped.push({ workerId: record.worker_id, reason })
  }
  return { eligible, skipped }
}

const skipWords = {
  'not-active': 'draining or dead',
  'other-role': 'of another role',
  'no-transport': 'reached by a transport that this router was not given',
  tried: 'tried already',
} as const

/** The same in words, as in `2 draining or dead`. */
export function describeSkipped(skipped: readonly SkippedWorker[]): string {
  const counts = new Map<string, number>()
  for (const { reason } of skipped) counts.set(skipWords[reason], (counts.get(skipWords[reason]) ?? 0) + 1)
  return [...counts].map(([words, count]) => `${count} ${words}`).join(', ')
}
