/** How a request ended. `client-gone`: whoever asked left; `broken`: the answer broke after its first byte. */
export type RequestOutcome = 'ok' | '4xx' | '5xx' | 'client-gone' | 'broken'

export function outcomeOf(status: number): RequestOutcome {
  return status < 400 ? 'ok' : status < 500 ? '4xx' : '5xx'
}

/**
 * One request from its acceptance to its end. Whatever ends it (the answer's end, an error, the client, the router) calls
 * `finish` or `abort`; the first one counts.
 */
export class RunningRequest {
  readonly #onFinish: (outcome: RequestOutcome) => void
  readonly #signal: AbortSignal | undefined
  readonly #onSignal = () => this.abort(this.#signal?.reason)
  #controller = new AbortController()
  #cleanups: (() => void)[] = []
  #abortReason: { readonly reason: unknown } | undefined
  #isFinished = false

  /** @param signal aborting it aborts the request */
  constructor(signal: AbortSignal | undefined, onFinish: (outcome: RequestOutcome) => void) {
    this.#signal = signal
    this.#onFinish = onFinish
    signal?.addEventListener('abort', this.#onSignal, { once: true })
  }

  get isFinished(): boolean {
    return this.#isFinished
  }

  /** Throws the reason when the request was aborted. */
  throwIfAborted(): void {
    if (this.#abortReason) throw this.#abortReason.reason
  }

  get isAborted(): boolean {
    return this.#abortReason !== undefined
  }

  /**
   * Starts an attempt on a worker.
   * @param cleanup undoes what was booked for it; called once, when the attempt or the request ends
   * @returns the signal that cancels it at the worker
   */
  beginAttempt(cleanup: () => void): AbortSignal {
    this.#controller = new AbortController()
    this.#cleanups.push(cleanup)
    return this.#controller.signal
  }

  /** @param cleanup called once, when the attempt that goes on or the request ends */
  addCleanup(cleanup: () => void): void {
    this.#cleanups.push(cleanup)
  }

  /** Ends the attempt: it is cancelled at the worker if it still runs there, and what was booked for it is released. */
  endAttempt(): void {
    this.#cleanUp()
    this.#controller.abort()
  }

  abort(reason: unknown): void {
    if (this.#isFinished) return
    this.#abortReason = { reason }
    this.#controller.abort(reason)
    this.finish('client-gone')
  }

  finish(outcome: RequestOutcome): void {
    if (this.#isFinished) return
    this.#isFinished = true
    this.#signal?.removeEventListener('abort', this.#onSignal)
    this.#cleanUp()
    this.#onFinish(outcome)
  }

  #cleanUp(): void {
    for (const cleanup of this.#cleanups.splice(0)) cleanup()
  }
}
