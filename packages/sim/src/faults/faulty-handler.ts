import type { TransportRequest, TransportResponse, WorkerRequestHandler } from '@infera/fleet'

/** Stands between a request and the engine: may change either way, or answer by itself. */
export type HandlerFault = (
  request: TransportRequest,
  options: { readonly signal: AbortSignal },
  next: WorkerRequestHandler,
) => Promise<TransportResponse>

/** An engine's request handler with faults before it; the newest one meets a request first. */
export class FaultyHandler {
  readonly #inner: WorkerRequestHandler
  readonly #faults = new Set<HandlerFault>()

  constructor(inner: WorkerRequestHandler) {
    this.#inner = inner
  }

  readonly handler: WorkerRequestHandler = (request, options) => {
    let handler = this.#inner
    for (const fault of this.#faults) {
      const next = handler
      handler = (asked, how) => fault(asked, how, next)
    }
    return handler(request, options)
  }

  /** @returns what takes it away again; requests that it has met keep it */
  add(fault: HandlerFault): () => void {
    const own: HandlerFault = (request, options, next) => fault(request, options, next)
    this.#faults.add(own)
    return () => {
      this.#faults.delete(own)
    }
  }
}
