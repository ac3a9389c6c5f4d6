import {
  type Clock,
  type Logger,
  type RequestTransport,
  TransportError,
  type TransportRequest,
  type TransportResponse,
  type WorkerRecord,
} from '@infera/fleet'
import { NoWorkerError, WorkersFailedError } from '../errors.js'
import type { PreparedRequest } from '../request/prepared-request.js'
import type { Retention } from '../scheduling/cache-hints.js'
import { describeSkipped } from '../scheduling/filter.js'
import type { LoadLedger } from '../scheduling/load-ledger.js'
import type { Placement } from '../scheduling/placement.js'
import { type PlaceableWorker, type Placer, type Plan, promptNeeded } from '../scheduling/placer.js'
import { type BodyTap, ResponseBody } from './response-body.js'
import { withRetention } from './retention-hints.js'
import { outcomeOf, type RunningRequest } from './running-request.js'
import { WaitLimit } from './wait-limit.js'
import { withRank } from './worker-request.js'

/** An answer that is on its way. */
export interface DispatchResult {
  readonly requestId: string
  /** Every placement that was tried, in order; the last one answers. */
  readonly placements: readonly Placement[]
  readonly workerId: string
  readonly status: number
  /** The worker's own, lower-case names, without those of its connection. */
  readonly headers: Readonly<Record<string, string>>
  /**
   * The worker's bytes, in its own chunks, to be iterated once. It throws `WorkersFailedError` when the worker fails on the
   * way, and the signal's reason when that aborts. Who does not iterate it to its end must leave the loop or abort the
   * signal given to `dispatch`; until then the request runs.
   */
  readonly body: AsyncIterableIterator<Uint8Array>
}

export interface DispatcherOptions<W extends PlaceableWorker> {
  readonly placer: Placer<W>
  readonly ledger: LoadLedger
  /** By the `request_transport` of the records that it serves. */
  readonly transports: ReadonlyMap<string, RequestTransport>
  readonly clock: Clock
  readonly logger: Logger
}

/** How far one request goes. */
export interface DispatchLimits {
  /** Further workers tried after the first. */
  readonly requestRetriesMax: number
  /** Longest wait for a worker's first byte, ms; null: none. */
  readonly firstByteTimeoutMs: number | null
  /** Longest wait for each further chunk, ms; null: none. */
  readonly idleTimeoutMs: number | null
}

/** One request's own ends. */
export interface DispatchHooks {
  readonly requestId: string
  readonly limits: DispatchLimits
  /** What engines are told of how long the prompt's cache is worth keeping; undefined: nothing. */
  readonly retention: Retention | undefined
  /** Finished when `dispatch` throws, or else when the answer's body ends. */
  readonly running: RunningRequest
  /** Called for each placement that is acted upon. @param attempt 1 for the first */
  readonly onPick: (placement: Placement, attempt: number) => void
  /** Called once, with the first byte in hand. @returns what is to see the answer go by, if anything */
  readonly onAnswer: (placement: Placement, response: TransportResponse) => BodyTap | undefined
}

/** A worker may be another moment away, or another worker less busy. Anything else below 500 is the client's own. */
const retryableStatuses: ReadonlySet<number> = new Set([408, 429])

type Attempt =
  | { readonly type: 'answered'; readonly response: TransportResponse; readonly first: Peeked }
  /** It answered, but with a status that another worker may better. */
  | { readonly type: 'refused'; readonly response: TransportResponse }
  | { readonly type: 'failed'; readonly error: unknown }

interface Peeked {
  readonly chunks: readonly Uint8Array[]
  readonly rest: AsyncIterator<Uint8Array> | undefined
}

/** Sends a request to one worker after the other until the first byte of an answer is there. */
export class Dispatcher<W extends PlaceableWorker> {
  readonly #options: DispatcherOptions<W>

  constructor(options: DispatcherOptions<W>) {
    this.#options = options
  }

  /**
   * @throws NoWorkerError, WorkersFailedError; the abort's reason
   */
  async dispatch(
    prepared: PreparedRequest,
    request: TransportRequest,
    hooks: DispatchHooks,
  ): Promise<DispatchResult> {
    const { running, limits } = hooks
    const { placer } = this.#options
    const tried = new Set<string>()
    const placements: Placement[] = []
    let last:
      | { readonly workerId: string; readonly attempt: Exclude<Attempt, { type: 'answered' }> }
      | undefined
    for (;;) {
      const mayTry = last === undefined || tried.size <= limits.requestRetriesMax
      let placed = mayTry ? placer.place(prepared, { tried }) : undefined
      while (placed === promptNeeded) {
        await prepared.readPrompt()
        running.throwIfAborted()
        placed = placer.place(prepared, { tried })
      }
      // From here to the booking nothing waits, so that what the decision saw still holds.
      const plan = placed !== undefined && 'placement' in placed ? placed : undefined
      if (last) {
        const { workerId, attempt } = last
        if (!plan) {
          if (attempt.type === 'failed')
            throw failure(attempt.error, { workerId, attempts: tried.size, isMidStream: false })
          const peeked = { chunks: [], rest: iterate(attempt.response) }
          return this.#result(attempt.response, peeked, placements, hooks)
        }
        running.endAttempt()
        this.#options.logger.info(
          {
            requestId: hooks.requestId,
            workerId,
            reason: reasonOf(attempt),
            next: plan.placement.workerId,
          },
          'a worker failed before its first byte; the next one is tried',
        )
      }
      if (!plan) {
        const skipped = placed !== undefined && 'skipped' in placed ? placed.skipped : []
        throw new NoWorkerError(prepared.model, describeSkipped(skipped))
      }
      const { workerId } = plan.placement
      tried.add(workerId)
      placements.push(plan.placement)
      const attempt = await this.#attempt(plan, request, tried.size, hooks)
      // An abort between the attempt's end and this line has released everything: nothing may be booked after it.
      running.throwIfAborted()
      if (attempt.type === 'answered') return this.#result(attempt.response, attempt.first, placements, hooks)
      last = { workerId, attempt }
    }
  }

  /** What `dispatch` resolves with: the answer of the worker that was tried last. */
  #result(
    response: TransportResponse,
    { chunks, rest }: Peeked,
    placements: readonly Placement[],
    { requestId, running, limits, onAnswer }: DispatchHooks,
  ): DispatchResult {
    const placement = placements.at(-1) as Placement
    const { workerId } = placement
    const tap = onAnswer(placement, response)
    const limit = this.#limit(workerId, limits.idleTimeoutMs, running, 'was silent within its answer')
    running.addCleanup(() => limit.stop())
    return {
      requestId,
      placements,
      workerId,
      status: response.status,
      headers: response.headers,
      body: new ResponseBody({
        peeked: chunks,
        source: rest,
        running,
        outcome: outcomeOf(response.status),
        tap,
        limit,
        translate: (error) => failure(error, { workerId, attempts: placements.length, isMidStream: true }),
      }),
    }
  }

  async #attempt(
    plan: Plan<W>,
    request: TransportRequest,
    attempt: number,
    { running, limits, retention, onPick }: DispatchHooks,
  ): Promise<Attempt> {
    const { record } = plan.worker
    const booking = this.#options.ledger.book(plan.placement.routeKey, plan.chains)
    const signal = running.beginAttempt(() => booking.release())
    plan.commit()
    onPick(plan.placement, attempt)
    const limit = this.#limit(record.worker_id, limits.firstByteTimeoutMs, running, 'sent no byte')
    try {
      const sent = withRank(withRetention(request, record, retention), plan.placement.rank)
      return await limit.wait(this.#answerOf(record, sent, signal, running))
    } catch (error) {
      running.throwIfAborted()
      return { type: 'failed', error }
    } finally {
      limit.stop()
    }
  }

  async #answerOf(
    record: WorkerRecord,
    request: TransportRequest,
    signal: AbortSignal,
    running: RunningRequest,
  ): Promise<Attempt> {
    const transport = this.#options.transports.get(record.request_transport) as RequestTransport
    const response = await transport.send(record, request, { signal })
    running.throwIfAborted()
    if (response.status >= 500 || retryableStatuses.has(response.status)) return { type: 'refused', response }
    const first = await peek(response)
    running.throwIfAborted()
    // An answer without a byte is none: a stream would end without a word, and JSON is never empty.
    if (first.chunks.length > 0 || response.status >= 300 || response.status === 204) {
      return { type: 'answered', response, first }
    }
    const message = `worker '${record.worker_id}' ended its answer before the first byte`
    return { type: 'failed', error: new TransportError('INFERA_FLEET_BROKEN', record.worker_id, message) }
  }

  /** A worker that exceeds it is let go of: its attempt is cancelled there, and what was booked for it is released. */
  #limit(workerId: string, timeoutMs: number | null, running: RunningRequest, fault: string): WaitLimit {
    const onExpired = () => {
      running.endAttempt()
      return new TransportError(
        'INFERA_FLEET_TIMEOUT',
        workerId,
        `worker '${workerId}' ${fault} for ${timeoutMs} ms`,
      )
    }
    return new WaitLimit({ clock: this.#options.clock, timeoutMs, onExpired })
  }
}

function iterate(response: TransportResponse): AsyncIterator<Uint8Array> {
  return response.body[Symbol.asyncIterator]()
}

/** Waits for the first byte, or for the end. */
async function peek(response: TransportResponse): Promise<Peeked> {
  const source = iterate(response)
  for (;;) {
    const result = await source.next()
    if (result.done) return { chunks: [], rest: undefined }
    if (result.value.length > 0) return { chunks: [result.value], rest: source }
  }
}

function failure(
  error: unknown,
  facts: { workerId: string; attempts: number; isMidStream: boolean },
): WorkersFailedError {
  const isTimeout = error instanceof TransportError && error.code === 'INFERA_FLEET_TIMEOUT'
  return new WorkersFailedError({ ...facts, status: isTimeout ? 504 : 502 }, { cause: error })
}

function reasonOf(attempt: Exclude<Attempt, { type: 'answered' }>): string {
  if (attempt.type === 'refused') return `status ${attempt.response.status}`
  return attempt.error instanceof TransportError ? attempt.error.code : 'unexpected error'
}
