import type { IncomingMessage } from 'node:http'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest, type RequestOptions } from 'node:https'
import type { KubeConfig } from '@kubernetes/client-node'
import { z } from 'zod'
import type { Clock } from '../ports/clock.js'
import { ApiError, ApiFormatError } from './api-error.js'

export interface ApiRequest {
  readonly method: 'GET' | 'PATCH'
  /** Absolute, escaped, without query. */
  readonly path: string
  readonly query?: Readonly<Record<string, string | number | undefined>>
  readonly contentType?: string
  readonly body?: string
}

const StatusBody = z.object({ message: z.string() })
const errorBodyMaxBytes = 65_536

/**
 * Requests to the API server, each on a connection of its own, so that each is made with the present token. The client's
 * configuration says where, whom to trust and who we are; its requests are not used, since its watch cannot be given up
 * before headers came, waits for them without end, and drops lines that it cannot read, and with them a change.
 */
export class ApiConnection {
  readonly #config: KubeConfig
  readonly #clock: Clock
  readonly #requestTimeoutMs: number
  readonly #bodyMaxBytes: number

  constructor(options: { config: KubeConfig; clock: Clock; requestTimeoutMs: number; bodyMaxBytes: number }) {
    this.#config = options.config
    this.#clock = options.clock
    this.#requestTimeoutMs = options.requestTimeoutMs
    this.#bodyMaxBytes = options.bodyMaxBytes
  }

  /**
   * One request and its JSON answer, within the time of a request.
   * @throws ApiError, ApiFormatError, the socket's error, or the signal's reason
   */
  async json(request: ApiRequest, signal: AbortSignal): Promise<unknown> {
    const limit = new TimeLimit(this.#clock, this.#requestTimeoutMs, signal)
    try {
      const response = await this.#send(request, limit.signal)
      const text = await readText(response, this.#bodyMaxBytes)
      return parseJson(text, 'answer')
    } catch (error) {
      limit.signal.throwIfAborted()
      throw error
    } finally {
      limit.end()
    }
  }

  /**
   * A response without end. Only its headers must come within the time of a request; after that it is the caller who leaves
   * by aborting the signal, or by leaving the iteration.
   * @param onOpen called when the server has said yes
   * @throws as `json`, the iteration too
   */
  async *stream(request: ApiRequest, signal: AbortSignal, onOpen: () => void): AsyncGenerator<Uint8Array> {
    const limit = new TimeLimit(this.#clock, this.#requestTimeoutMs, signal)
    try {
      const response = await this.#send(request, limit.signal)
      limit.lift()
      onOpen()
      // Half-open connections are also found by the kernel, before the watch's own limit.
      response.socket.setKeepAlive(true, 30_000)
      for await (const chunk of response) yield chunk as Uint8Array
    } catch (error) {
      limit.signal.throwIfAborted()
      throw error
    } finally {
      limit.end()
    }
  }

  async #send(request: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const cluster = this.#config.getCurrentCluster()
    if (!cluster) throw new Error('the Kubernetes configuration names no current cluster')
    const options: RequestOptions = { headers: {} }
    await untilAborted(this.#config.applyToHTTPSOptions(options), signal)
    const url = new URL(cluster.server.replace(/\/+$/, '') + request.path)
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value))
    }
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const send = url.protocol === 'http:' ? httpRequest : httpsRequest
      const headers = {
        ...options.headers,
        accept: 'application/json',
        'user-agent': 'infera-fleet',
        ...(request.body === undefined
          ? {}
          : { 'content-type': request.contentType, 'content-length': Buffer.byteLength(request.body) }),
      }
      const sent = send(url, { ...options, headers, method: request.method, signal }, resolve)
      sent.on('error', reject)
      sent.end(request.body)
    })
    if (response.statusCode === 200 || response.statusCode === 201) return response
    throw await toError(request, response)
  }
}

async function toError(request: ApiRequest, response: IncomingMessage): Promise<ApiError> {
  const status = response.statusCode ?? 0
  const retryAfterSeconds = Number(response.headers['retry-after'] ?? Number.NaN)
  let said = ''
  try {
    const parsed = StatusBody.safeParse(JSON.parse(await readText(response, errorBodyMaxBytes)))
    if (parsed.success) said = `: ${parsed.data.message.slice(0, 500)}`
  } catch {
    // The status alone has to do: proxies answer with pages of their own, or break off.
  }
  return new ApiError(
    status,
    `${request.method} ${request.path} was answered with ${status}${said}`,
    retryAfterSeconds >= 0 ? retryAfterSeconds * 1000 : undefined,
  )
}

async function readText(response: IncomingMessage, maxBytes: number): Promise<string> {
  const parts: Uint8Array[] = []
  let sizeBytes = 0
  for await (const part of response) {
    sizeBytes += (part as Uint8Array).byteLength
    // Leaving the loop destroys the response.
    if (sizeBytes > maxBytes) throw new ApiFormatError(`an answer exceeds ${maxBytes} bytes`)
    parts.push(part as Uint8Array)
  }
  return Buffer.concat(parts).toString('utf8')
}

/** @throws ApiFormatError */
export function parseJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new ApiFormatError(`an ${what} of the API server is not JSON`, { cause: error })
  }
}

/** Some ways to get a token run programs, which heed no signal. */
function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}

/** A signal that aborts with another one, or after a time. */
class TimeLimit {
  readonly #controller = new AbortController()
  readonly #outer: AbortSignal
  readonly #onAbort = () => this.#controller.abort(this.#outer.reason)
  readonly #timer

  constructor(clock: Clock, timeoutMs: number, outer: AbortSignal) {
    this.#outer = outer
    if (outer.aborted) this.#onAbort()
    outer.addEventListener('abort', this.#onAbort, { once: true })
    this.#timer = clock.setTimer(timeoutMs, () =>
      this.#controller.abort(new Error(`no answer of the API server within ${timeoutMs} ms`)),
    )
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** Time does not count any more. */
  lift(): void {
    this.#timer.cancel()
  }

  end(): void {
    this.#timer.cancel()
    this.#outer.removeEventListener('abort', this.#onAbort)
  }
}
