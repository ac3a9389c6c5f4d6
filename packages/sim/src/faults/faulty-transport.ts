import type { WorkerRecord } from '@infera/fleet'
import {
  type RequestTransport,
  TransportError,
  type TransportRequest,
  type TransportResponse,
} from '@infera/fleet'

/** A request on its way to a worker. */
export interface Sending {
  readonly worker: WorkerRecord
  readonly request: TransportRequest
  /** Aborted when the caller wants no answer any more. */
  readonly signal: AbortSignal
}

/** Stands between a router and the transport of its requests. */
export type TransportFault = (
  sending: Sending,
  next: (sending: Sending) => Promise<TransportResponse>,
) => Promise<TransportResponse>

/**
 * A request transport with faults, by worker. They are what networks and proxies do to whole exchanges: a request or its answer
 * is lost, with or without a word; a request is delivered twice (an intermediary sends it again) or later than one that was sent
 * after it; everything comes late; nothing comes for a while; the connection breaks. Bytes of one answer are never lost, doubled
 * or reordered by themselves: no transport of a fleet runs over anything less than TCP.
 */
export class FaultyTransport implements RequestTransport {
  readonly #inner: RequestTransport
  readonly #faults = new Map<string, Set<TransportFault>>()
  /** Exchanges that are under way, by worker. */
  readonly #running = new Map<string, Set<AbortController>>()

  constructor(inner: RequestTransport) {
    this.#inner = inner
  }

  get kind(): RequestTransport['kind'] {
    return this.#inner.kind
  }

  /** Exchanges that have not ended. */
  get runningCount(): number {
    let count = 0
    for (const running of this.#running.values()) count += running.size
    return count
  }

  /** @returns what takes it away again; exchanges that it has met keep it */
  add(workerId: string, fault: TransportFault): () => void {
    const faults = this.#faults.get(workerId) ?? new Set()
    this.#faults.set(workerId, faults)
    const own: TransportFault = (sending, next) => fault(sending, next)
    faults.add(own)
    return () => {
      faults.delete(own)
      if (faults.size === 0 && this.#faults.get(workerId) === faults) this.#faults.delete(workerId)
    }
  }

  /** Breaks every exchange with a worker that is under way. */
  cut(workerId: string): void {
    for (const controller of [...(this.#running.get(workerId) ?? [])]) {
      controller.abort(
        new TransportError('INFERA_FLEET_BROKEN', workerId, `the connection to worker '${workerId}' was cut`),
      )
    }
  }

  async send(
    worker: WorkerRecord,
    request: TransportRequest,
    { signal }: { signal?: AbortSignal } = {},
  ): Promise<TransportResponse> {
    signal?.throwIfAborted()
    const exchange = this.#begin(worker.worker_id, signal)
    let send = (sending: Sending) =>
      this.#inner.send(sending.worker, sending.request, { signal: sending.signal })
    for (const fault of this.#faults.get(worker.worker_id) ?? []) {
      const next = send
      send = (sending) => fault(sending, next)
    }
    try {
      const response = await send({ worker, request, signal: exchange.signal })
      return { ...response, body: new EndingBody(response.body[Symbol.asyncIterator](), exchange) }
    } catch (error) {
      exchange.end()
      throw error
    }
  }

  close(): Promise<void> {
    return this.#inner.close()
  }

  #begin(workerId: string, signal: AbortSignal | undefined): Exchange {
    const controller = new AbortController()
    const onAbort = () => controller.abort(signal?.reason)
    signal?.addEventListener('abort', onAbort, { once: true })
    const running = this.#running.get(workerId) ?? new Set()
    this.#running.set(workerId, running)
    running.add(controller)
    const end = () => {
      signal?.removeEventListener('abort', onAbort)
      running.delete(controller)
      if (running.size === 0 && this.#running.get(workerId) === running) this.#running.delete(workerId)
    }
    controller.signal.addEventListener('abort', end, { once: true })
    return { signal: controller.signal, end }
  }
}

interface Exchange {
  readonly signal: AbortSignal
  /** May be called again. */
  end(): void
}

/** Ends its exchange with the body. Not a generator: one that was never pulled would not end it. */
class EndingBody implements AsyncIterableIterator<Uint8Array> {
  readonly #source: AsyncIterator<Uint8Array>
  readonly #exchange: Exchange

  constructor(source: AsyncIterator<Uint8Array>, exchange: Exchange) {
    this.#source = source
    this.#exchange = exchange
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    try {
      const result = await this.#source.next()
      if (result.done) this.#exchange.end()
      return result
    } catch (error) {
      this.#exchange.end()
      throw error
    }
  }

  async return(): Promise<IteratorResult<Uint8Array>> {
    this.#exchange.end()
    await this.#source.return?.()
    return { value: undefined, done: true }
  }

  [Symbol.asyncIterator](): this {
    return this
  }
}
