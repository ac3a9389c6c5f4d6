import type { RequestTransport, TransportRequest, TransportResponse, WorkerRecord } from '@infera/fleet'

/** How a request ended at its worker. */
export type CallEnding = 'answered' | 'broken' | 'cancelled' | 'unanswered'

/** Answers a request in a worker's place. What it throws is thrown by `send`. */
export type Script = (call: Call) => TransportResponse | Promise<TransportResponse>

export const utf8 = (text: string) => new TextEncoder().encode(text)

/** One request as its worker saw it. */
export class Call {
  /** Resolves when it is over at the worker. */
  readonly ended: Promise<CallEnding>
  /** How it ended; undefined while it runs. */
  ending: CallEnding | undefined
  /** Chunks of the answer that were asked for. */
  pullCount = 0
  #resolve: (ending: CallEnding) => void = () => {}

  constructor(
    readonly workerId: string,
    readonly request: TransportRequest,
    readonly signal: AbortSignal,
  ) {
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve
    })
    signal.addEventListener('abort', () => this.end('cancelled'), { once: true })
  }

  get text(): string {
    return new TextDecoder().decode(this.request.body)
  }

  end(ending: CallEnding): void {
    if (this.ending) return
    this.ending = ending
    this.#resolve(ending)
  }
}

/** Workers in memory that do as they are told. It keeps the contract of `RequestTransport` on cancelling. */
export class ScriptedTransport implements RequestTransport {
  readonly kind = 'link'
  readonly calls: Call[] = []
  readonly #scripts = new Map<string, Script>()
  #waiters: { index: number; resolve: () => void }[] = []

  /** @param workerId `*` for every worker without a script of its own */
  script(workerId: string, script: Script): this {
    this.#scripts.set(workerId, script)
    return this
  }

  get workerIds(): string[] {
    return this.calls.map(({ workerId }) => workerId)
  }

  /** The call of that number, from 0 on; waits until it has arrived. */
  async call(index: number): Promise<Call> {
    if (!this.calls[index]) {
      await new Promise<void>((resolve) => {
        this.#waiters.push({ index, resolve })
      })
    }
    return this.calls[index] as Call
  }

  async send(
    worker: WorkerRecord,
    request: TransportRequest,
    { signal = new AbortController().signal }: { signal?: AbortSignal } = {},
  ): Promise<TransportResponse> {
    signal.throwIfAborted()
    const call = new Call(worker.worker_id, request, signal)
    this.calls.push(call)
    for (const waiter of this.#waiters.filter(({ index }) => index < this.calls.length)) waiter.resolve()
    this.#waiters = this.#waiters.filter(({ index }) => index >= this.calls.length)
    const script = this.#scripts.get(worker.worker_id) ?? this.#scripts.get('*')
    if (!script) throw new Error(`worker '${worker.worker_id}' has no script`)
    try {
      const response = await orAborted(Promise.resolve(script(call)), signal)
      return { ...response, body: bodyOf(response, call) }
    } catch (error) {
      call.end('unanswered')
      throw error
    }
  }

  async close(): Promise<void> {}
}

async function* bodyOf(response: TransportResponse, call: Call): AsyncGenerator<Uint8Array> {
  const source = response.body[Symbol.asyncIterator]()
  try {
    for (;;) {
      call.pullCount += 1
      const result = await orAborted(source.next(), call.signal)
      if (result.done) {
        call.end('answered')
        return
      }
      yield result.value
    }
  } catch (error) {
    call.end('broken')
    throw error
  } finally {
    call.end('cancelled')
  }
}

function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}

/** A body that a test feeds as it goes. Chunks wait without bound for whoever pulls. */
export class Feed implements AsyncIterableIterator<Uint8Array> {
  readonly #steps: (() => Promise<IteratorResult<Uint8Array>>)[] = []
  #waiter: (() => void) | undefined

  push(...chunks: readonly (string | Uint8Array)[]): this {
    for (const chunk of chunks) {
      const value = typeof chunk === 'string' ? utf8(chunk) : chunk
      this.#add(async () => ({ value, done: false }))
    }
    return this
  }

  end(): this {
    return this.#add(async () => ({ value: undefined, done: true }))
  }

  break(error: Error): this {
    return this.#add(() => Promise.reject(error))
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    if (this.#steps.length === 0) {
      await new Promise<void>((resolve) => {
        this.#waiter = resolve
      })
    }
    return (this.#steps.shift() as () => Promise<IteratorResult<Uint8Array>>)()
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #add(step: () => Promise<IteratorResult<Uint8Array>>): this {
    this.#steps.push(step)
    this.#waiter?.()
    this.#waiter = undefined
    return this
  }
}

export function json(body: unknown, status = 200): TransportResponse {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  return { status, headers: { 'content-type': 'application/json' }, body: new Feed().push(text).end() }
}

/** An event stream of these chunks, which then ends. */
export function sse(...chunks: readonly (string | Uint8Array)[]): TransportResponse {
  return sseOf(new Feed().push(...chunks).end())
}

export function sseOf(body: AsyncIterable<Uint8Array>): TransportResponse {
  return { status: 200, headers: { 'content-type': 'text/event-stream; charset=utf-8' }, body }
}

/** Never answers. */
export const silence: Script = () => new Promise(() => {})
