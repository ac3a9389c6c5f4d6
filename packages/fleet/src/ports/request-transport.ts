import type { WorkerRecord } from '../records/worker-record.js'

/** A request for a worker's engine. Header names are lower case; `body` is sent byte for byte. */
export interface TransportRequest {
  readonly method: 'GET' | 'POST'
  /** Absolute path, as in `/v1/chat/completions`. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/** What came back. It exists once status and headers are known, before the first byte of the body. */
export interface TransportResponse {
  readonly status: number
  /** Lower-case names; hop-by-hop headers and content-length removed. */
  readonly headers: Readonly<Record<string, string>>
  /**
   * The body in the engine's own chunks, to be iterated once. It ends only when the worker ended it properly; a broken
   * transport throws `TransportError`. `break` (or aborting the signal given to `send`) cancels the request at the worker.
   * Who does not iterate it must abort the signal, or the response occupies its connection.
   */
  readonly body: AsyncIterable<Uint8Array>
}

/** Carries requests to workers. Implemented by link and http. */
export interface RequestTransport {
  /** The `request_transport` value of the records that it serves. */
  readonly kind: WorkerRecord['request_transport']
  /**
   * @param options.signal aborting it, at any time until the body ended, cancels the request at the worker
   * @throws TransportError when no status came back; the signal's reason when that aborted
   */
  send(
    worker: WorkerRecord,
    request: TransportRequest,
    options?: { signal?: AbortSignal },
  ): Promise<TransportResponse>
  close(): Promise<void>
}

/** The worker's side: answers a request with status, headers and a body that is produced as it is pulled. */
export type WorkerRequestHandler = (
  request: TransportRequest,
  options: { signal: AbortSignal },
) => Promise<TransportResponse>
