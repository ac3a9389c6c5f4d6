/** Steps through a body, and stops waiting for it as soon as a signal aborts, whether or not the body heeds that. */
export class AbortableIterator<T> {
  readonly #iterator: AsyncIterator<T>
  readonly #signal: AbortSignal
  #giveUp = () => {}

  constructor(body: AsyncIterable<T>, signal: AbortSignal) {
    this.#iterator = body[Symbol.asyncIterator]()
    this.#signal = signal
    // One listener for the whole body: one for each step would cost more than a small chunk does.
    signal.addEventListener('abort', () => this.#giveUp(), { once: true })
  }

  /** The next step; undefined once the signal has aborted. */
  next(): Promise<IteratorResult<T> | undefined> {
    if (this.#signal.aborted) return Promise.resolve(undefined)
    return new Promise((resolve, reject) => {
      this.#giveUp = () => resolve(undefined)
      this.#iterator.next().then(resolve, reject)
    })
  }

  /** Lets the body go before its end. */
  leave(): void {
    // Not awaited: a generator that is stuck in its own wait would hold us too. Its failure has no reader any more.
    this.#iterator.return?.().then(undefined, () => {})
  }
}
