import type { Logger } from '@infera/fleet'
import type { DispatchResult } from '../dispatch/dispatcher.js'
import { BodyTooLargeError, RouterError } from '../errors.js'
import type { SettingsSource } from '../live-options.js'
import type { InferencePath } from '../prompt/prompt-model.js'
import { inferencePaths } from '../request/check-inference.js'
import { requestIdFrom } from '../request/request-id.js'
import type { DispatchRequest } from '../request/route-request.js'
import { type ErrorAnswer, errorAnswer, methodNotAllowed, notFound } from './error-body.js'
import { parseBody } from './parse-body.js'
import { SseTail } from './sse-tail.js'

export interface OpenAiFaceParts {
  readonly dispatch: (request: DispatchRequest, options: { signal: AbortSignal }) => Promise<DispatchResult>
  /** Names that can be asked for now. */
  readonly models: () => readonly string[]
  readonly live: SettingsSource<'basePath' | 'bodyBytesMax'>
  readonly logger: Logger
}

/** A request as an adapter hands it over. */
export interface FaceRequest {
  readonly method: string
  /**
   * Path without query; where a framework cut off what a part of it is mounted at, the whole one follows. The first that is an
   * endpoint counts.
   */
  readonly paths: readonly [string, ...string[]]
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  /**
   * Reads the whole body; called at most once. Rejects with `BodyTooLargeError` as soon as the body is known to be longer. An
   * adapter whose client is gone aborts `signal` before it rejects with anything else.
   */
  readonly readBody: (bytesMax: number) => Promise<Uint8Array>
  /** Aborted when the client is gone, also while the answer's body is read. */
  readonly signal: AbortSignal
}

/** What an adapter sends. Status and headers are fit for any HTTP. */
export interface FaceAnswer {
  readonly requestId: string
  /** 200 to 599. */
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /**
   * All of it, or chunks that an adapter pulls as its client reads. When it throws, the answer must be cut off such that the client
   * notices. Who does not pull it to its end must abort the request's signal.
   */
  readonly body: Uint8Array | AsyncIterableIterator<Uint8Array>
  /** The request's body was refused while more of it may be on its way. */
  readonly isBodyRefused?: true
}

const modelsPath = '/v1/models'
const nothing = new Uint8Array(0)
/** Statuses whose answers have no body. */
const bodiless: ReadonlySet<number> = new Set([204, 205, 304])

/** The OpenAI face of a router. Knows HTTP's terms but no implementation of it, and nothing of placement. */
export class OpenAiFace {
  readonly #parts: OpenAiFaceParts

  constructor(parts: OpenAiFaceParts) {
    this.#parts = parts
  }

  /**
   * Answers one request; what goes wrong is an answer as well.
   * @throws only once the request's signal is aborted, when nobody is there to be told and everything is released
   */
  async answer(request: FaceRequest): Promise<FaceAnswer> {
    const { headers } = request
    const requestId = requestIdFrom(
      firstOf(headers['x-infera-request-id']) ?? firstOf(headers['x-request-id']),
    )
    const answer = await this.#answerOrError(request, requestId)
    return {
      ...answer,
      requestId,
      headers: { 'X-Infera-Request-Id': requestId, 'X-Request-Id': requestId, ...answer.headers },
    }
  }

  /** Logs what is neither the client's nor a worker's fault. */
  report(error: unknown, requestId: string): void {
    if (error instanceof RouterError) return
    const message = error instanceof Error ? (error.stack ?? error.message) : String(error)
    this.#parts.logger.error({ request_id: requestId, error: message }, 'request failed by a fault of ours')
  }

  async #answerOrError(request: FaceRequest, requestId: string): Promise<Omit<FaceAnswer, 'requestId'>> {
    const { method, paths, signal } = request
    const { basePath } = this.#parts.live.settings
    try {
      const path = endpointOf(paths, basePath)
      if (path === undefined) return errorOf(notFound(paths.at(-1) as string, basePath))
      if (inferencePaths.has(path)) {
        if (method !== 'POST') return errorOf(methodNotAllowed(method, 'POST'))
        return await this.#infer(path as InferencePath, request, requestId)
      }
      if (method !== 'GET' && method !== 'HEAD') return errorOf(methodNotAllowed(method, 'GET, HEAD'))
      const answer = this.#modelsAt(path) ?? errorOf(notFound(paths.at(-1) as string, basePath))
      return method === 'HEAD' ? { ...answer, body: nothing } : answer
    } catch (error) {
      if (signal.aborted) throw error
      this.report(error, requestId)
      const answer = errorOf(errorAnswer(error))
      return error instanceof BodyTooLargeError ? { ...answer, isBodyRefused: true } : answer
    }
  }

  async #infer(
    path: InferencePath,
    { headers, readBody, signal }: FaceRequest,
    requestId: string,
  ): Promise<Omit<FaceAnswer, 'requestId'>> {
    const { dispatch, live } = this.#parts
    const { bodyBytesMax } = live.settings
    if (Number(headers['content-length'] ?? 0) > bodyBytesMax) throw new BodyTooLargeError(bodyBytesMax)
    const rawBody = await readBody(bodyBytesMax)
    const body = parseBody(rawBody)
    const result = await dispatch({ path, body, rawBody, requestId, headers }, { signal })
    const returned = returnedHeaders(result.headers)
    // A worker can answer with a number that is no final status, which nothing could send.
    const status = result.status >= 200 && result.status <= 599 ? result.status : 502
    if (bodiless.has(status)) {
      await result.body.return?.()
      return { status, headers: returned, body: nothing }
    }
    if (!isEventStream(returned)) return { status, headers: returned, body: result.body }
    const streaming = { ...returned, 'cache-control': 'no-cache', 'x-accel-buffering': 'no' }
    return { status, headers: streaming, body: this.#events(result, signal) }
  }

  /** The worker's events as they are, and where they break off one that says so. */
  async *#events(
    { body, headers, requestId }: DispatchResult,
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const tail = new SseTail()
    try {
      for await (const chunk of body) {
        tail.push(chunk)
        yield chunk
      }
    } catch (error) {
      // Compressed bytes cannot be continued with plain ones: such a stream is cut off.
      if (signal.aborted || headers['content-encoding'] !== undefined) throw error
      this.report(error, requestId)
      if (!tail.isDone) yield errorEvent(tail, error)
    }
  }

  /** @returns undefined where there is no such model */
  #modelsAt(path: string): Omit<FaceAnswer, 'requestId'> | undefined {
    const created = Math.floor(Date.now() / 1000)
    const models = this.#parts.models().map((id) => ({ id, object: 'model', created, owned_by: 'infera' }))
    if (path === modelsPath) return jsonOf(200, { object: 'list', data: models })
    const wanted = decodedTail(path)
    const model = models.find(({ id }) => id === wanted)
    return model && jsonOf(200, model)
  }
}

/** What is asked for, by its path under `/v1`; undefined when that is nothing of ours. */
function endpointOf(paths: readonly string[], basePath: string): string | undefined {
  for (const path of paths) {
    if (!path.startsWith(basePath)) continue
    const endpoint = `/v1${path.slice(basePath.length)}`
    const isOurs =
      inferencePaths.has(endpoint) || endpoint === modelsPath || endpoint.startsWith(`${modelsPath}/`)
    if (isOurs) return endpoint
  }
  return undefined
}

/**
 * One event that carries the error. An event that was cut off is ended first: what was sent of it is lost in any case, but
 * the error must not be read as more of it.
 */
function errorEvent(tail: SseTail, error: unknown): Uint8Array {
  const event = `data: ${JSON.stringify(errorAnswer(error).body)}\n\n`
  return Buffer.from(tail.isBetweenEvents ? event : `\n\n${event}`)
}

/** What of an engine's answer is about the bytes that are passed on, where it is fit for a header. */
function returnedHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const returned: Record<string, string> = {}
  for (const name of ['content-type', 'content-encoding', 'retry-after']) {
    const value = headers[name]
    if (value !== undefined && /^[\t\x20-\x7e\x80-\xff]*$/.test(value)) returned[name] = value
  }
  return returned
}

function isEventStream(headers: Readonly<Record<string, string>>): boolean {
  return headers['content-type']?.startsWith('text/event-stream') ?? false
}

function firstOf(value: string | readonly string[] | undefined): string | undefined {
  return typeof value === 'object' ? value[0] : value
}

function decodedTail(path: string): string | undefined {
  try {
    return decodeURIComponent(path.slice(modelsPath.length + 1))
  } catch {
    return undefined // a malformed escape names no model
  }
}

function errorOf({ status, headers, body }: ErrorAnswer): Omit<FaceAnswer, 'requestId'> {
  const answer = jsonOf(status, body)
  return { ...answer, headers: { ...answer.headers, ...headers } }
}

function jsonOf(
  status: number,
  value: unknown,
): Omit<FaceAnswer, 'requestId' | 'body'> & { body: Uint8Array } {
  const body = Buffer.from(JSON.stringify(value))
  return {
    status,
    headers: { 'content-type': 'application/json', 'content-length': String(body.length) },
    body,
  }
}
