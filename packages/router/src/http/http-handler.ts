import type { IncomingMessage, ServerResponse } from 'node:http'
import { type Clock, type Logger, sleep } from '@infera/fleet'
import type { DispatchResult } from '../dispatch/dispatcher.js'
import { BodyTooLargeError, RouterError } from '../errors.js'
import type { InferencePath } from '../prompt/prompt-model.js'
import { inferencePaths } from '../request/check-inference.js'
import { requestIdFrom } from '../request/request-id.js'
import type { DispatchRequest } from '../request/route-request.js'
import { readBody } from './body-reader.js'
import { type ErrorAnswer, errorAnswer, methodNotAllowed, notFound } from './error-body.js'
import { parseBody } from './parse-body.js'
import { relay } from './relay.js'
import { SseTail, watched } from './sse-tail.js'

export interface HttpHandlerParts {
  readonly dispatch: (request: DispatchRequest, options: { signal: AbortSignal }) => Promise<DispatchResult>
  /** Names that can be asked for now. */
  readonly models: () => readonly string[]
  readonly bodyBytesMax: number
  readonly clock: Clock
  readonly logger: Logger
}

/** How long a client that still sends a refused body may take to read why. */
const lingerMs = 2_000
const modelsPath = '/v1/models'

/** The OpenAI face of a router for node:http. Knows HTTP and nothing of placement. */
export class HttpHandler {
  readonly #parts: HttpHandlerParts

  constructor(parts: HttpHandlerParts) {
    this.#parts = parts
  }

  /** Answers one request; resolves when the answer has been written or the client is gone. Never rejects for either's fault. */
  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const requestId = requestIdFrom(
      firstOf(req.headers['x-infera-request-id']) ?? firstOf(req.headers['x-request-id']),
    )
    res.setHeader('X-Infera-Request-Id', requestId)
    res.setHeader('X-Request-Id', requestId)
    // A response whose connection fails closes, which is where that is dealt with.
    res.on('error', () => {})
    const path = pathOf(req.url ?? '/')
    try {
      if (inferencePaths.has(path)) {
        if (req.method === 'POST') await this.#infer(path as InferencePath, requestId, req, res)
        else sendError(req, res, methodNotAllowed(req.method ?? '', 'POST'))
      } else if (path === modelsPath || path.startsWith(`${modelsPath}/`)) {
        if (req.method === 'GET' || req.method === 'HEAD') this.#sendModels(path, req, res)
        else sendError(req, res, methodNotAllowed(req.method ?? '', 'GET, HEAD'))
      } else sendError(req, res, notFound(path))
    } catch (error) {
      this.#fail(error, requestId, req, res)
    }
  }

  async #infer(
    path: InferencePath,
    requestId: string,
    req: IncomingMessage,
    res: ServerResponse,
  ): Promise<void> {
    const rawBody = await readBody(req, this.#parts.bodyBytesMax)
    const body = parseBody(rawBody)
    const client = new AbortController()
    const onClose = () => {
      if (!res.writableFinished) client.abort(new Error('the client left'))
    }
    res.once('close', onClose)
    if (res.destroyed) onClose()
    try {
      const request = { path, body, rawBody, requestId, headers: req.headers }
      const result = await this.#parts.dispatch(request, { signal: client.signal })
      await sendResult(result, res)
    } catch (error) {
      // Nobody is there to be told, and dispatch has cancelled what it had begun.
      if (!client.signal.aborted) throw error
    } finally {
      res.off('close', onClose)
    }
  }

  #sendModels(path: string, req: IncomingMessage, res: ServerResponse): void {
    const created = Math.floor(Date.now() / 1000)
    const models = this.#parts.models().map((id) => ({ id, object: 'model', created, owned_by: 'infera' }))
    if (path === modelsPath) {
      sendJson(req, res, 200, { object: 'list', data: models })
      return
    }
    const wanted = decodedTail(path)
    const model = models.find(({ id }) => id === wanted)
    if (model) sendJson(req, res, 200, model)
    else sendError(req, res, notFound(path))
  }

  #fail(error: unknown, requestId: string, req: IncomingMessage, res: ServerResponse): void {
    if (!(error instanceof RouterError) && !req.destroyed && !res.destroyed) {
      const message = error instanceof Error ? (error.stack ?? error.message) : String(error)
      this.#parts.logger.error({ request_id: requestId, error: message }, 'request failed by a fault of ours')
    }
    if (res.destroyed || res.headersSent) {
      res.destroy() // too late for a status, and an answer that merely stopped would look complete
      return
    }
    if (error instanceof BodyTooLargeError) this.#refuseBody(error, req, res)
    else sendError(req, res, errorAnswer(error))
  }

  /** Answers while the body is still coming: the rest is read and dropped, or the connection's end could overtake the answer. */
  #refuseBody(error: BodyTooLargeError, req: IncomingMessage, res: ServerResponse): void {
    const { status, body } = errorAnswer(error)
    const text = JSON.stringify(body)
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
      connection: 'close',
    }
    res.writeHead(status, headers)
    res.write(text)
    req.resume()
    const sent = new AbortController()
    req.once('end', () => sent.abort())
    req.once('close', () => sent.abort())
    const end = () => {
      res.end(() => req.destroy())
    }
    void sleep(this.#parts.clock, lingerMs, sent.signal).then(end, end)
  }
}

async function sendResult(result: DispatchResult, res: ServerResponse): Promise<void> {
  const isEventStream = result.headers['content-type']?.startsWith('text/event-stream') ?? false
  const extra = isEventStream ? { 'cache-control': 'no-cache', 'x-accel-buffering': 'no' } : {}
  res.writeHead(result.status, { ...returnedHeaders(result.headers), ...extra })
  if (!isEventStream) {
    if (await relay(result.body, res)) res.end()
    return
  }
  const tail = new SseTail()
  try {
    if (await relay(watched(result.body, tail), res)) res.end()
  } catch (error) {
    if (res.destroyed) return
    // Compressed bytes cannot be continued with plain ones: such a stream is cut off.
    if (result.headers['content-encoding'] !== undefined) throw error
    res.end(tail.isDone ? undefined : errorEvent(tail, error))
  }
}

/**
 * One event that carries the error. An event that was cut off is ended first: what was sent of it is lost in any case, but
 * the error must not be read as more of it.
 */
function errorEvent(tail: SseTail, error: unknown): string {
  return `${tail.isBetweenEvents ? '' : '\n\n'}data: ${JSON.stringify(errorAnswer(error).body)}\n\n`
}

/** What of an engine's answer is about the bytes that are passed on. */
function returnedHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const returned: Record<string, string> = {}
  for (const name of ['content-type', 'content-encoding', 'retry-after']) {
    const value = headers[name]
    if (value !== undefined) returned[name] = value
  }
  return returned
}

function pathOf(target: string): string {
  try {
    return new URL(target, 'http://localhost').pathname
  } catch {
    return target // no URL, so no path of ours either
  }
}

function firstOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value
}

function decodedTail(path: string): string | undefined {
  try {
    return decodeURIComponent(path.slice(modelsPath.length + 1))
  } catch {
    return undefined // a malformed escape names no model
  }
}

function sendError(req: IncomingMessage, res: ServerResponse, { status, headers, body }: ErrorAnswer): void {
  req.resume()
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value)
  sendJson(req, res, status, body)
}

function sendJson(req: IncomingMessage, res: ServerResponse, status: number, body: unknown): void {
  const text = JSON.stringify(body)
  res.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) })
  res.end(req.method === 'HEAD' ? undefined : text)
}
