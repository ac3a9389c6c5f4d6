import type { Clock, Timer } from '@infera/fleet'

interface Pending {
  /** In this clock's own time. */
  readonly dueMs: number
  readonly callback: () => void
  timer: Timer | undefined
}

/** A clock that runs at a rate of another one, and may stand still: an engine on it slows down, hangs, and goes on. */
export class EngineClock implements Clock {
  readonly #clock: Clock
  readonly #pending = new Set<Pending>()
  #rate = 1
  #ownMs: number
  #readAtMs: number

  constructor(clock: Clock) {
    this.#clock = clock
    this.#ownMs = clock.now()
    this.#readAtMs = this.#ownMs
  }

  now(): number {
    return this.#ownMs + (this.#clock.now() - this.#readAtMs) * this.#rate
  }

  /** How fast it runs: 1 as the other clock, 0 not at all. */
  get rate(): number {
    return this.#rate
  }

  setRate(rate: number): void {
    this.#ownMs = this.now()
    this.#readAtMs = this.#clock.now()
    this.#rate = rate
    for (const pending of this.#pending) {
      pending.timer?.cancel()
      this.#arm(pending)
    }
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const pending: Pending = { dueMs: this.now() + Math.max(0, delayMs), callback, timer: undefined }
    this.#pending.add(pending)
    this.#arm(pending)
    return {
      cancel: () => {
        pending.timer?.cancel()
        this.#pending.delete(pending)
      },
    }
  }

  #arm(pending: Pending): void {
    pending.timer = undefined
    if (this.#rate === 0) return
    pending.timer = this.#clock.setTimer(Math.max(0, pending.dueMs - this.now()) / this.#rate, () => {
      this.#pending.delete(pending)
      pending.callback()
    })
  }
}
