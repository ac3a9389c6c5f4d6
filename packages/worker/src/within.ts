import { type Clock, type Logger, sleep } from '@infera/fleet'

export interface Limits {
  readonly timeoutMs: number
  readonly signal?: AbortSignal
  /** What is logged, with the reason, when it takes too long or fails. */
  readonly complaint?: string
}

/**
 * @returns what the promise gives; undefined when it takes too long, or the signal aborts
 * @throws what it rejects with, unless there is a complaint to log in its place
 */
export async function within<T>(
  work: Promise<T> | undefined,
  {
    timeoutMs,
    signal,
    complaint,
    clock,
    logger,
  }: Limits & { readonly clock: Clock; readonly logger: Logger },
): Promise<T | undefined> {
  const done = new AbortController()
  const limit = signal ? AbortSignal.any([done.signal, signal]) : done.signal
  const late = sleep(clock, timeoutMs, limit).then(
    () => 'late' as const,
    () => 'aborted' as const,
  )
  const settled = Promise.resolve(work).then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  )
  const result = await Promise.race([settled, late])
  done.abort()
  if (result === 'aborted') return undefined
  if (result !== 'late' && 'value' in result) return result.value
  if (result !== 'late' && complaint === undefined) throw result.error
  const reason = result === 'late' ? `no answer within ${timeoutMs} ms` : String(result.error)
  if (complaint !== undefined) logger.warn({ reason }, complaint)
  return undefined
}

export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
