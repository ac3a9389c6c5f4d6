import type { TransportRequest, TransportResponse } from '@infera/fleet'
import type { InferencePath, PromptModel } from '@infera/router/prompt'
import type { EngineCore } from '../engine/engine-core.js'
import { RequestRefusedError } from '../errors.js'
import type { ResolvedSimEngineOptions } from '../options.js'
import { type AnswerIdentity, streamedAnswer, unaryAnswer, usageOf } from './answers.js'
import { errorAnswer } from './error-object.js'
import { metricsContentType, metricsText } from './metrics-text.js'
import { parseRequest } from './request.js'

export interface OpenAiFaceParts {
  readonly core: EngineCore
  readonly prompt: PromptModel
  readonly options: ResolvedSimEngineOptions
  readonly instanceId: string
  readonly wallClock: () => number
}

const encoder = new TextEncoder()
const requestIdPattern = /^[\w.:-]{1,128}$/

/** The engine as OpenAI clients and routers see it: paths, bodies, status codes. */
export class OpenAiFace {
  readonly #parts: OpenAiFaceParts
  #answers = 0

  constructor(parts: OpenAiFaceParts) {
    this.#parts = parts
  }

  async handle(request: TransportRequest, options: { signal: AbortSignal }): Promise<TransportResponse> {
    const path = request.path.split('?', 1)[0] ?? ''
    switch (path) {
      case '/v1/chat/completions':
      case '/v1/completions':
        if (request.method !== 'POST') return json(405, { detail: 'Method Not Allowed' })
        return this.#generate(path, request, options.signal)
      case '/health':
        return this.#parts.core.state === 'closed' ? text(503, '') : text(200, '')
      case '/v1/models':
        return json(200, this.#models())
      case '/metrics':
        return text(200, this.metricsText(), metricsContentType)
      default:
        return json(404, { detail: 'Not Found' })
    }
  }

  metricsText(): string {
    const { core, options } = this.#parts
    return metricsText({
      model: options.model,
      runningRequests: core.scheduler.running.length,
      waitingRequests: core.scheduler.waiting.length,
      kvUsageRatio: core.pool.usedBlocks / core.pool.capacityBlocks,
      blocks: options.blocks,
      blockSizeTokens: options.blockSizeTokens,
      metrics: core.metrics,
    })
  }

  async #generate(
    path: InferencePath,
    request: TransportRequest,
    signal: AbortSignal,
  ): Promise<TransportResponse> {
    const { core, prompt, options } = this.#parts
    try {
      const { isStreamed, includesUsage, ...asked } = parseRequest(path, request.body, prompt, options)
      const running = core.submit({ ...asked, signal })
      const identity = this.#identity(path, request)
      const usage = () => usageOf(asked.promptTokens.length, running)
      if (isStreamed) {
        return sse(streamedAnswer(identity, running, includesUsage ? usage : undefined))
      }
      let answer = ''
      for await (const piece of running.generation) {
        answer += piece.text
        if (piece.finishReason) return json(200, unaryAnswer(identity, answer, piece.finishReason, usage()))
      }
      // An answer without a last piece is one whose generation failed, which throws.
      throw new RequestRefusedError('INFERA_SIM_CLOSED', 'the engine ended the answer early')
    } catch (error) {
      if (!(error instanceof RequestRefusedError)) throw error
      const { status, body, retryAfterSeconds } = errorAnswer(error)
      return json(
        status,
        body,
        retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) },
      )
    }
  }

  /** The id ends in the request id that came with the request, so that one id can be followed through the fleet. */
  #identity(path: InferencePath, { headers }: TransportRequest): AnswerIdentity {
    const given = headers['x-request-id'] ?? headers['x-infera-request-id'] ?? ''
    const own = () => `${this.#parts.instanceId.slice(0, 8)}-${this.#answers++}`
    return {
      path,
      id: `${path === '/v1/completions' ? 'cmpl' : 'chatcmpl'}-${requestIdPattern.test(given) ? given : own()}`,
      model: this.#parts.options.model,
      created: Math.floor(this.#parts.wallClock() / 1000),
    }
  }

  #models() {
    const { options, wallClock } = this.#parts
    const card = {
      id: options.model,
      object: 'model',
      created: Math.floor(wallClock() / 1000),
      owned_by: 'infera',
      max_model_len: options.modelTokensMax,
    }
    return { object: 'list', data: [card] }
  }
}

function json(status: number, value: object, headers: Record<string, string> = {}): TransportResponse {
  return {
    status,
    headers: { 'content-type': 'application/json', ...headers },
    body: once(encoder.encode(JSON.stringify(value))),
  }
}

function text(status: number, value: string, contentType = 'text/plain; charset=utf-8'): TransportResponse {
  return { status, headers: { 'content-type': contentType }, body: once(encoder.encode(value)) }
}

function sse(events: AsyncIterable<string>): TransportResponse {
  return {
    status: 200,
    headers: { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' },
    body: encoded(events),
  }
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  if (bytes.byteLength > 0) yield bytes
}

async function* encoded(events: AsyncIterable<string>): AsyncGenerator<Uint8Array, void, void> {
  for await (const event of events) yield encoder.encode(event)
}
