import type { Clock, TransportResponse, WorkerRequestHandler } from '@infera/fleet'

/** A request inside one engine. */
export interface RunningAtEngine {
  readonly requestId: string
  readonly sinceMs: number
}

/** Knows what an engine is at work on, from the call of its handler to the end of the answer's body or its abort. */
export class RequestWatch {
  readonly #clock: Clock
  readonly #running = new Set<RunningAtEngine>()
  #drainingSinceMs: number | undefined
  readonly #lateArrivals: RunningAtEngine[] = []
  readonly handler: WorkerRequestHandler

  constructor(inner: WorkerRequestHandler, clock: Clock) {
    this.#clock = clock
    this.handler = (request, options) => this.#serve(inner, request, options)
  }

  get running(): Iterable<RunningAtEngine> {
    return this.#running
  }

  /** From now on requests should stay away. */
  drain(): void {
    this.#drainingSinceMs ??= this.#clock.now()
  }

  /** Requests that came more than `graceMs` after the drain had begun. */
  arrivalsAfterDrain(graceMs: number): readonly RunningAtEngine[] {
    const since = this.#drainingSinceMs
    return since === undefined ? [] : this.#lateArrivals.filter(({ sinceMs }) => sinceMs > since + graceMs)
  }

  async #serve(
    inner: WorkerRequestHandler,
    request: Parameters<WorkerRequestHandler>[0],
    options: { signal: AbortSignal },
  ): Promise<TransportResponse> {
    const entry = { requestId: request.headers['x-request-id'] ?? '', sinceMs: this.#clock.now() }
    if (this.#drainingSinceMs !== undefined) this.#lateArrivals.push(entry)
    this.#running.add(entry)
    const end = () => {
      this.#running.delete(entry)
      options.signal.removeEventListener('abort', end)
    }
    options.signal.addEventListener('abort', end, { once: true })
    try {
      const response = await inner(request, options)
      return { ...response, body: watched(response.body, end) }
    } catch (error) {
      end()
      throw error
    }
  }
}

async function* watched(body: AsyncIterable<Uint8Array>, end: () => void): AsyncGenerator<Uint8Array> {
  try {
    yield* body
  } finally {
    end()
  }
}
