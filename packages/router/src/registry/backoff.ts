import { type Clock, type Random, sleep } from '@infera/fleet'

export interface BackoffOptions {
  /** First and longest wait, in milliseconds. */
  readonly minMs: number
  readonly maxMs: number
  readonly clock: Clock
  readonly random: Random
}

/** Waits that double up to a longest one, each shortened by up to half by chance, so that many do not come back at once. */
export class Backoff {
  readonly #options: BackoffOptions
  #nextMs: number

  constructor(options: BackoffOptions) {
    this.#options = options
    this.#nextMs = options.minMs
  }

  /** What was waited for works again: the next wait is the first one. */
  reset(): void {
    this.#nextMs = this.#options.minMs
  }

  /** @throws the signal's reason when it aborts */
  async wait(signal: AbortSignal): Promise<void> {
    const { clock, random, maxMs } = this.#options
    const delayMs = this.#nextMs * (1 - random() / 2)
    this.#nextMs = Math.min(maxMs, this.#nextMs * 2)
    await sleep(clock, delayMs, signal)
  }
}
