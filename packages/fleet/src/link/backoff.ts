import type { Random } from '../ports/random.js'

/** Growing pauses between attempts: each at most twice the one before, up to a cap, and the upper half of it by chance. */
export class Backoff {
  readonly #firstMs: number
  readonly #maxMs: number
  readonly #random: Random
  #ceilingMs: number

  constructor(options: { firstMs: number; maxMs: number; random: Random }) {
    this.#firstMs = options.firstMs
    this.#maxMs = Math.max(options.firstMs, options.maxMs)
    this.#random = options.random
    this.#ceilingMs = this.#firstMs
  }

  /** The pause before the next attempt, in [half, whole] of the present ceiling. */
  nextDelayMs(): number {
    const delayMs = this.#ceilingMs * (0.5 + 0.5 * this.#random())
    this.#ceilingMs = Math.min(this.#maxMs, this.#ceilingMs * 2)
    return delayMs
  }

  /** The next pause is the longest. */
  exhaust(): void {
    this.#ceilingMs = this.#maxMs
  }

  reset(): void {
    this.#ceilingMs = this.#firstMs
  }
}
