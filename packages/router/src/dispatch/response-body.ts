import type { RequestOutcome, RunningRequest } from './running-request.js'
import type { WaitLimit } from './wait-limit.js'

export interface ResponseBodyOptions {
  /** Chunks that were taken from the source already. */
  readonly peeked: readonly Uint8Array[]
  /** The rest; undefined when the source has ended. */
  readonly source: AsyncIterator<Uint8Array> | undefined
  readonly running: RunningRequest
  /** How the request ends when the source does. */
  readonly outcome: RequestOutcome
  /** On the wait for each chunk of the source. */
  readonly limit: WaitLimit
  /** What a consumer sees when the source fails. */
  readonly translate: (error: unknown) => Error
}

/**
 * The body of an answer. Not a generator: one that is dropped before it is first pulled never runs its `finally`, and the
 * load that was booked for it would stay.
 */
export class ResponseBody implements AsyncIterableIterator<Uint8Array> {
  readonly #options: ResponseBodyOptions
  readonly #peeked: Uint8Array[]

  constructor(options: ResponseBodyOptions) {
    this.#options = options
    this.#peeked = [...options.peeked]
    if (!options.source && this.#peeked.length === 0) options.running.finish(options.outcome)
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    const { running, source, outcome, limit, translate } = this.#options
    running.throwIfAborted()
    const peeked = this.#peeked.shift()
    if (peeked) {
      if (!source && this.#peeked.length === 0) running.finish(outcome)
      return { value: peeked, done: false }
    }
    if (running.isFinished || !source) return { value: undefined, done: true }
    try {
      const result = await limit.wait(source.next())
      running.throwIfAborted()
      if (!result.done) return result
      running.finish(outcome)
      return { value: undefined, done: true }
    } catch (error) {
      running.throwIfAborted()
      running.finish('broken')
      throw translate(error)
    }
  }

  /** The consumer wants no more: cancelled at the worker. */
  async return(): Promise<IteratorResult<Uint8Array>> {
    this.#peeked.length = 0
    const { running, source } = this.#options
    if (!running.isFinished) {
      running.abort(new DOMException('the body was left before its end', 'AbortError'))
      await source?.return?.()
    }
    return { value: undefined, done: true }
  }

  [Symbol.asyncIterator](): this {
    return this
  }
}
