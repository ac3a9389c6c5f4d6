import type { Clock } from '../ports/clock.js'

/** Inboxes remembered; the oldest go first. */
const inboxesMax = 16_384

/** Requests that were cancelled, perhaps before they arrived: they are not to be begun when they come out of a queue. */
export class CancelledInboxes {
  readonly #clock: Clock
  readonly #lifeMs: number
  /** Inbox to the time when it is forgotten, in the order of these times. */
  readonly #until = new Map<string, number>()

  /** @param options.lifeMs how long each is remembered */
  constructor(options: { clock: Clock; lifeMs: number }) {
    this.#clock = options.clock
    this.#lifeMs = options.lifeMs
  }

  get size(): number {
    return this.#until.size
  }

  add(inbox: string): void {
    const nowMs = this.#clock.now()
    this.#until.delete(inbox)
    this.#until.set(inbox, nowMs + this.#lifeMs)
    for (const [oldest, untilMs] of this.#until) {
      if (untilMs > nowMs && this.#until.size <= inboxesMax) break
      this.#until.delete(oldest)
    }
  }

  has(inbox: string): boolean {
    const untilMs = this.#until.get(inbox)
    return untilMs !== undefined && untilMs > this.#clock.now()
  }
}
