import { TransportError } from '../errors.js'
import type { Clock, Timer } from '../ports/clock.js'

/**
 * One signal for one request, made of everything that may cut it short: the caller's signal, silence for too long, and
 * a total that is too long. `reason` is what a caller should see.
 */
export class RequestLimits {
  readonly #clock: Clock
  readonly #workerId: string
  readonly #idleTimeoutMs: number | undefined
  readonly #controller = new AbortController()
  readonly #callerSignal: AbortSignal | undefined
  readonly #onCallerAbort = () => this.abort(this.#callerSignal?.reason)
  readonly #total: Timer | undefined
  #idle: Timer | undefined

  constructor(
    clock: Clock,
    workerId: string,
    options: {
      idleTimeoutMs: number | undefined
      totalTimeoutMs: number | undefined
      signal: AbortSignal | undefined
    },
  ) {
    this.#clock = clock
    this.#workerId = workerId
    this.#idleTimeoutMs = options.idleTimeoutMs
    this.#callerSignal = options.signal
    this.#callerSignal?.addEventListener('abort', this.#onCallerAbort, { once: true })
    const { totalTimeoutMs } = options
    if (totalTimeoutMs !== undefined) {
      this.#total = clock.setTimer(totalTimeoutMs, () => this.#expire(`took more than ${totalTimeoutMs} ms`))
    }
    this.touch()
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  abort(reason: unknown): void {
    this.end()
    this.#controller.abort(reason)
  }

  /** Something arrived: the idle limit starts anew. */
  touch(): void {
    const idleTimeoutMs = this.#idleTimeoutMs
    if (idleTimeoutMs === undefined) return
    this.#idle?.cancel()
    this.#idle = this.#clock.setTimer(idleTimeoutMs, () =>
      this.#expire(`was silent for more than ${idleTimeoutMs} ms`),
    )
  }

  /** The reader is at work on its own side: silence of the worker is not counted until `touch`. */
  pause(): void {
    this.#idle?.cancel()
  }

  /** The request is over; nothing fires any more. */
  end(): void {
    this.#idle?.cancel()
    this.#total?.cancel()
    this.#callerSignal?.removeEventListener('abort', this.#onCallerAbort)
  }

  #expire(what: string): void {
    this.abort(
      new TransportError(
        'INFERA_FLEET_TIMEOUT',
        this.#workerId,
        `request to worker '${this.#workerId}' ${what}`,
      ),
    )
  }
}
