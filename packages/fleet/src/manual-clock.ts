import type { Clock, Timer } from './ports/clock.js'

/** A clock that stands still until it is told to move. Timers fire in order of time, then of arming. */
export class ManualClock implements Clock {
  #nowMs = 0
  #order = 0
  #timers: { atMs: number; order: number; callback: () => void }[] = []

  now(): number {
    return this.#nowMs
  }

  get pendingTimers(): number {
    return this.#timers.length
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const timer = { atMs: this.#nowMs + Math.max(0, delayMs), order: this.#order++, callback }
    this.#timers.push(timer)
    return {
      cancel: () => {
        this.#timers = this.#timers.filter((other) => other !== timer)
      },
    }
  }

  /** Moves time by `ms`, firing what falls due on the way, each at its own time. */
  advance(ms: number): void {
    const endMs = this.#nowMs + ms
    while (this.#fireNext(endMs));
    this.#nowMs = endMs
  }

  /** As `advance`, but lets promises settle before each timer, so that chains of awaits move on. */
  async advanceAsync(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms
    do await new Promise((resolve) => setImmediate(resolve))
    while (this.#fireNext(endMs))
    this.#nowMs = endMs
  }

  /** Fires the first timer that is due by `endMs`. @returns whether there was one */
  #fireNext(endMs: number): boolean {
    const due = this.#timers
      .filter((timer) => timer.atMs <= endMs)
      .sort((a, b) => a.atMs - b.atMs || a.order - b.order)[0]
    if (!due) return false
    this.#timers = this.#timers.filter((timer) => timer !== due)
    this.#nowMs = Math.max(this.#nowMs, due.atMs)
    due.callback()
    return true
  }
}
