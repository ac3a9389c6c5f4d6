import type { Clock, Timer } from '@infera/fleet'

export interface WaitLimitOptions {
  readonly clock: Clock
  /** Longest single wait, ms, > 0; null: without limit. */
  readonly timeoutMs: number | null
  /** Called when a wait has lasted too long, before it rejects with what this returns. */
  readonly onExpired: () => Error
}

/**
 * Limits how long is waited for a worker, one wait after the other. Only waits count: what a slow reader does between them
 * takes nothing from the worker's time.
 */
export class WaitLimit {
  readonly #options: WaitLimitOptions
  #timer: Timer | undefined
  #sinceMs = 0
  /** Ends the wait that goes on; undefined between waits. */
  #fail: ((error: Error) => void) | undefined

  constructor(options: WaitLimitOptions) {
    this.#options = options
  }

  /**
   * Waits for `work`. One wait at a time.
   * @throws what `work` throws; what `onExpired` returns when the limit passes first, whatever becomes of `work` then
   */
  wait<T>(work: Promise<T>): Promise<T> {
    const { clock, timeoutMs } = this.#options
    if (timeoutMs === null) return work
    this.#sinceMs = clock.now()
    // One timer for many waits, moved on only when it fires: moving it for every chunk would cost more than the chunk.
    if (!this.#timer) this.#arm(timeoutMs)
    return new Promise((resolve, reject) => {
      this.#fail = reject
      work.then(
        (value) => {
          this.#fail = undefined
          resolve(value)
        },
        (error: unknown) => {
          this.#fail = undefined
          reject(error)
        },
      )
    })
  }

  /** No further wait follows. Idempotent. */
  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  #arm(delayMs: number): void {
    this.#timer = this.#options.clock.setTimer(delayMs, () => {
      this.#timer = undefined
      this.#due()
    })
  }

  #due(): void {
    const { clock, timeoutMs } = this.#options
    const fail = this.#fail
    if (!fail || timeoutMs === null) return // the next wait arms it
    const leftMs = this.#sinceMs + timeoutMs - clock.now()
    if (leftMs > 0) {
      this.#arm(leftMs)
      return
    }
    // Timers run before sockets are read. If it was this process that stood still, the worker's bytes wait to be read now,
    // so one more turn of the event loop decides.
    const sinceMs = this.#sinceMs
    this.#timer = clock.setTimer(0, () => {
      this.#timer = undefined
      if (this.#fail === fail && this.#sinceMs === sinceMs) {
        this.#fail = undefined
        fail(this.#options.onExpired())
      } else if (this.#fail) this.#due()
    })
  }
}
