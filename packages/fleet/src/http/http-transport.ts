import { Agent, type Dispatcher, errors } from 'undici'
import { z } from 'zod'
import { TransportError } from '../errors.js'
import { endToEndHeaders } from '../headers.js'
import { clockOption, durationMs, loggerOption, parseOptions } from '../options.js'
import type { RequestTransport, TransportRequest, TransportResponse } from '../ports/request-transport.js'
import type { WorkerRecord } from '../records/worker-record.js'
import { RequestLimits } from './request-limits.js'

const Options = z.strictObject({
  /** For the TCP (and TLS) handshake. */
  connectTimeoutMs: durationMs().default(60_000),
  /** Longest silence of a worker, before its headers and between its bytes; none by default: long prompts take minutes. */
  idleTimeoutMs: durationMs().optional(),
  /** Longest life of a request; none by default. */
  totalTimeoutMs: durationMs().optional(),
  /** How long an unused connection to a worker that states no limit of its own is kept for reuse. */
  keepAliveTimeoutMs: durationMs().default(500),
  /** Longest time that an unused connection is kept, whatever the worker allows. */
  keepAliveTimeoutMsMax: durationMs().default(60_000),
  /** A connection is dropped this long before the worker's own stated limit, so that both ends do not race. */
  keepAliveMarginMs: durationMs().default(2_000),
  clock: clockOption,
  logger: loggerOption,
})
export type HttpTransportOptions = z.input<typeof Options>

/**
 * Requests to workers that speak HTTP, over as many connections as requests are open at once.
 *
 * A POST is never sent twice: a connection that breaks after the request went out is `UNREACHABLE`, since nobody can know
 * whether the worker took it, and the caller decides. A GET whose reused connection turned out closed is sent once more,
 * on a fresh connection.
 */
export class HttpTransport implements RequestTransport {
  readonly kind = 'http'
  readonly #options: z.output<typeof Options>
  readonly #pool: Agent
  readonly #fresh: Agent
  #closing: Promise<void> | undefined

  /** @throws InvalidFleetOptionsError */
  constructor(options: HttpTransportOptions = {}) {
    this.#options = parseOptions('HttpTransport', Options, options)
    const { connectTimeoutMs, keepAliveTimeoutMs, keepAliveTimeoutMsMax, keepAliveMarginMs } = this.#options
    const shared = {
      // Waiting for a worker is limited by our own idle and total limits, on our own clock, or not at all.
      headersTimeout: 0,
      bodyTimeout: 0,
      allowH2: false,
      connect: { timeout: connectTimeoutMs },
    }
    this.#pool = new Agent({
      ...shared,
      keepAliveTimeout: keepAliveTimeoutMs,
      keepAliveMaxTimeout: keepAliveTimeoutMsMax,
      keepAliveTimeoutThreshold: keepAliveMarginMs,
    })
    // Without pipelining every request has a connection of its own.
    this.#fresh = new Agent({ ...shared, pipelining: 0 })
  }

  /**
   * @throws TransportError `INFERA_FLEET_UNREACHABLE`, `INFERA_FLEET_TIMEOUT`, `INFERA_FLEET_CLOSED`; the body throws
   *   `INFERA_FLEET_BROKEN` or `INFERA_FLEET_TIMEOUT`
   */
  async send(
    worker: WorkerRecord,
    request: TransportRequest,
    options: { signal?: AbortSignal } = {},
  ): Promise<TransportResponse> {
    options.signal?.throwIfAborted()
    const workerId = worker.worker_id
    if (this.#closing) {
      throw new TransportError('INFERA_FLEET_CLOSED', workerId, 'http transport is closed')
    }
    const { clock, idleTimeoutMs, totalTimeoutMs } = this.#options
    const limits = new RequestLimits(clock, workerId, {
      idleTimeoutMs,
      totalTimeoutMs,
      signal: options.signal,
    })
    try {
      const response = await this.#dispatch(worker, request, limits.signal)
      // A body that is aborted before anybody reads it would otherwise end the process with an unhandled 'error'; its
      // reader still gets the error.
      response.body.on('error', () => {})
      limits.touch()
      const headers = endToEndHeaders(response.headers)
      return { status: response.statusCode, headers, body: readBody(workerId, response.body, limits) }
    } catch (error) {
      limits.end()
      if (limits.signal.aborted) throw limits.signal.reason
      const message = `worker '${workerId}' gave no answer: ${describe(error)}`
      throw new TransportError('INFERA_FLEET_UNREACHABLE', workerId, message, { cause: error })
    }
  }

  /** Takes no new request and waits for those that run. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= Promise.all([this.#pool.close(), this.#fresh.close()]).then(() => {})
    return this.#closing
  }

  async #dispatch(
    worker: WorkerRecord,
    request: TransportRequest,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const url = new URL(worker.url.replace(/\/+$/, '') + request.path)
    const hasBody = request.method !== 'GET'
    const options = {
      origin: url.origin,
      path: url.pathname + url.search,
      method: request.method,
      headers: requestHeaders(request.headers),
      body: hasBody ? request.body : null,
      signal,
    }
    try {
      return await this.#pool.request(options)
    } catch (error) {
      if (hasBody || signal.aborted || !isClosedOnReuse(error)) throw error
      this.#options.logger.debug(
        { workerId: worker.worker_id },
        'connection was closed on reuse: sending GET again',
      )
      return await this.#fresh.request(options)
    }
  }
}

function requestHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  // `expect` would make the client wait for a 100 that engines do not send; `host` is that of the worker.
  const { expect: _expect, host: _host, ...kept } = endToEndHeaders(headers)
  // Bodies are passed on as bytes, and not every client can decode what a worker might choose.
  return { ...kept, 'accept-encoding': 'identity' }
}

async function* readBody(
  workerId: string,
  body: Dispatcher.ResponseData['body'],
  limits: RequestLimits,
): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of body) {
      // While the consumer works on its chunk the worker may well be held back by us.
      limits.pause()
      yield chunk
      limits.touch()
    }
  } catch (error) {
    if (limits.signal.aborted) throw limits.signal.reason
    throw new TransportError(
      'INFERA_FLEET_BROKEN',
      workerId,
      `response of worker '${workerId}' broke: ${describe(error)}`,
      {
        cause: error,
      },
    )
  } finally {
    limits.end()
    // Left early, the body is destroyed by its iterator, which closes the connection: the worker sees the client go.
  }
}

/**
 * Whether a connection that had served before was found closed. A reset does not say how the connection had fared; to ask
 * again does no harm then, since only a GET is.
 */
function isClosedOnReuse(error: unknown): boolean {
  if (error instanceof errors.SocketError) return (error.socket?.bytesRead ?? 0) > 0
  if (!(error instanceof Error) || !('code' in error)) return false
  return error.code === 'ECONNRESET' || error.code === 'EPIPE'
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return 'code' in error && typeof error.code === 'string'
    ? `${error.message} (${error.code})`
    : error.message
}
