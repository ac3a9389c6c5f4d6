import type { Clock, Timer } from '../ports/clock.js'

/**
 * Pings a peer at a steady pace and tells when nothing at all was heard from it for too long. Judges only by this end's
 * monotonic time and by what arrives: no time of day is read, sent or compared, so clocks may differ or jump as they like.
 */
export class Liveness {
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #intervalMs: number
  readonly #onPing: () => void
  readonly #onGone: () => void
  #lastHeardMs: number
  #pingTimer: Timer | undefined
  #deadline: Timer | undefined
  #isStopped = false

  constructor(options: {
    clock: Clock
    pingIntervalMs: number
    livenessTimeoutMs: number
    onPing: () => void
    onGone: () => void
  }) {
    this.#clock = options.clock
    this.#intervalMs = options.pingIntervalMs
    this.#timeoutMs = options.livenessTimeoutMs
    this.#onPing = options.onPing
    this.#onGone = options.onGone
    this.#lastHeardMs = this.#clock.now()
    this.#armPing()
    this.#armDeadline()
  }

  /** Something arrived, be it part of a frame. */
  heard(): void {
    this.#lastHeardMs = this.#clock.now()
  }

  stop(): void {
    this.#isStopped = true
    this.#pingTimer?.cancel()
    this.#deadline?.cancel()
  }

  #armPing(): void {
    this.#pingTimer = this.#clock.setTimer(this.#intervalMs, () => {
      this.#onPing()
      if (!this.#isStopped) this.#armPing()
    })
  }

  // Re-armed only when it fires: moving a timer for every chunk that arrives would cost more than the chunk.
  #armDeadline(): void {
    const leftMs = this.#lastHeardMs + this.#timeoutMs - this.#clock.now()
    this.#deadline = this.#clock.setTimer(Math.max(0, leftMs), () => this.#onDeadline())
  }

  #onDeadline(): void {
    if (this.#clock.now() - this.#lastHeardMs < this.#timeoutMs) {
      this.#armDeadline()
      return
    }
    // Timers run before sockets are read. If it was this process that stood still, the peer's bytes wait to be read now,
    // so one more turn of the event loop decides.
    const checkedMs = this.#lastHeardMs
    this.#deadline = this.#clock.setTimer(0, () => {
      if (this.#lastHeardMs !== checkedMs) return this.#armDeadline()
      this.stop()
      this.#onGone()
    })
  }
}
