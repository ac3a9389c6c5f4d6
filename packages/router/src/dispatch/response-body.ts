import type { RequestOutcome, RunningRequest } from './running-request.js'
import type { WaitLimit } from './wait-limit.js'

/** Sees an answer go by. */
export interface BodyTap {
  push(chunk: Uint8Array): void
  /** The answer has come whole. */
  end(): void
}

export interface ResponseBodyOptions {
  /** Chunks that were taken from the source already. */
  readonly peeked: readonly Uint8Array[]
  /** The rest; undefined when the source has ended. */
  readonly source: AsyncIterator<Uint8Array> | undefined
  readonly running: RunningRequest
  /** How the request ends when the source does. */
  readonly outcome: RequestOutcome
  readonly tap?: BodyTap | undefined
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
    if (!options.source && this.#peeked.length === 0) this.#end()
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    const { running, source, limit, tap, translate } = this.#options
    running.throwIfAborted()
    const peeked = this.#peeked.shift()
    if (peeked) {
      tap?.push(peeked)
      if (!source && this.#peeked.length === 0) this.#end()
      return { value: peeked, done: false }
    }
    if (running.isFinished || !source) return { value: undefined, done: true }
    try {
      const result = await limit.wait(source.next())
      running.throwIfAborted()
      if (!result.done) {
        tap?.push(result.value)
        return result
      }
      this.#end()
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

  #end(): void {
    const { running, outcome, tap } = this.#options
    running.finish(outcome)
    tap?.end()
  }

  [Symbol.asyncIterator](): this {
    return this
  }
}
