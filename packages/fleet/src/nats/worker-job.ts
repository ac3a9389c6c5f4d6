import type { NatsConnection } from '@nats-io/transport-node'
import { endToEndHeaders } from '../headers.js'
import { AbortableIterator } from '../link/abortable-iterator.js'
import { untilAborted } from '../link/until-aborted.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { TransportRequest, TransportResponse, WorkerRequestHandler } from '../ports/request-transport.js'
import type { EnvelopeHead } from './envelope.js'
import { type ReplyFields, type ReplyType, replyHeaders } from './frames.js'
import { drainNotice } from './names.js'
import { partSizeBytes } from './outgoing-request.js'

export interface WorkerJobOptions {
  readonly inbox: string
  readonly head: EnvelopeHead
  readonly body: Uint8Array
  readonly handler: WorkerRequestHandler
  readonly connection: () => NatsConnection | undefined
  /** 0: none. */
  readonly idleTimeoutMs: number
  /** 0: none. */
  readonly totalTimeoutMs: number
  readonly clock: Clock
}

/** Bytes sent between two waits for the broker: what is on its way is bounded by it. */
const flushBytes = 512 * 1024

/**
 * One request at the worker, from its handler to its frames. Exactly one terminal frame is sent, unless the front end has said
 * that it does not listen, or nothing can be sent any more. A front end that names no capabilities gets the reference's frames
 * and no others.
 */
export class WorkerJob {
  readonly #options: WorkerJobOptions
  readonly #controller = new AbortController()
  readonly #hasCap: (cap: string) => boolean
  #sequence = 0
  #sentBytes = 0
  #isOver = false
  #idle: Timer | undefined
  #total: Timer | undefined

  constructor(options: WorkerJobOptions) {
    this.#options = options
    const caps = new Set(options.head.caps)
    this.#hasCap = (cap) => caps.has(cap)
  }

  get isMigratable(): boolean {
    return this.#options.head.migratable
  }

  /** Resolves when the request has ended, however it did. */
  async run(): Promise<void> {
    const { head, body, handler, totalTimeoutMs, clock } = this.#options
    const { signal } = this.#controller
    if (totalTimeoutMs > 0) {
      this.#total = clock.setTimer(totalTimeoutMs, () => this.fail('request exceeded max duration', 504))
    }
    if (this.#hasCap('ack')) this.#publish('ack')
    this.#touch()
    const request: TransportRequest = {
      method: head.method,
      path: head.path,
      // The reference's front end sends none of its own; a raw body brings them.
      headers: { ...(head.headers ? {} : { 'content-type': 'application/json' }), ...defaulted(head) },
      body,
    }
    try {
      const response = await untilAborted(handler(request, { signal }), signal)
      if (this.#hasCap('status-first')) await this.#relay(response)
      else if (head.stream) await this.#relay(response)
      else await this.#relayWhole(response)
    } catch (error) {
      // Aborted, the reason was told already.
      this.fail(error instanceof Error ? error.message : String(error), 502)
    } finally {
      this.#idle?.cancel()
      this.#total?.cancel()
      this.#controller.abort(new Error('request is over'))
    }
  }

  /** Ends it with an error frame; its handler is told to stop. Does nothing once it is over. */
  fail(text: string, status: number): void {
    this.#finish('error', { status: this.#hasCap('status-first') ? status : undefined }, Buffer.from(text))
    this.#controller.abort(new Error(text))
  }

  /** Gives a migratable request back, so that it goes on elsewhere. */
  handBack(): void {
    this.fail(drainNotice, 503)
  }

  /** Ends it without a word. */
  destroy(reason: string): void {
    this.#isOver = true
    this.#controller.abort(new Error(reason))
  }

  async #relay({ status, headers, body }: TransportResponse): Promise<void> {
    const { signal } = this.#controller
    if (this.#hasCap('status-first')) this.#publish('data', { status, headers: endToEndHeaders(headers) })
    const steps = new AbortableIterator(body, signal)
    while (true) {
      const step = await steps.next()
      if (!step) {
        steps.leave()
        return
      }
      if (step.done) break
      this.#touch()
      await this.#sendChunk(step.value)
      this.#touch()
    }
    this.#finish('done', { status })
  }

  /** As one frame, which is all that the reference's front end knows of an answer that is no stream. */
  async #relayWhole({ status, body }: TransportResponse): Promise<void> {
    const { signal } = this.#controller
    const sizeBytesMax = this.#payloadBytesMax()
    const parts: Uint8Array[] = []
    let sizeBytes = 0
    const steps = new AbortableIterator(body, signal)
    while (true) {
      const step = await steps.next()
      if (!step) {
        steps.leave()
        return
      }
      if (step.done) break
      this.#touch()
      parts.push(step.value)
      sizeBytes += step.value.byteLength
      if (sizeBytes <= sizeBytesMax) continue
      steps.leave()
      const limit = `the broker's max_payload allows ${sizeBytesMax} bytes`
      this.fail(`response of more than ${sizeBytes - 1} bytes is too large: ${limit}; raise max_payload`, 502)
      return
    }
    if (sizeBytes > 0) this.#publish('data', {}, Buffer.concat(parts))
    this.#finish('done', { status })
  }

  async #sendChunk(chunk: Uint8Array): Promise<void> {
    const pieceBytes = partSizeBytes(this.#payloadBytesMax())
    if (chunk.byteLength <= pieceBytes) {
      if (chunk.byteLength > 0) await this.#sendPiece(chunk)
      return
    }
    const count = Math.ceil(chunk.byteLength / pieceBytes)
    for (let index = 0; index < count; index++) {
      const part = this.#hasCap('chunk') ? `${index + 1}/${count}` : undefined
      await this.#sendPiece(chunk.subarray(index * pieceBytes, (index + 1) * pieceBytes), part)
      if (this.#isOver) return
    }
  }

  async #sendPiece(bytes: Uint8Array, part?: string): Promise<void> {
    this.#publish('data', { part }, bytes)
    this.#sentBytes += bytes.byteLength
    if (this.#sentBytes < flushBytes) return
    this.#sentBytes = 0
    const flushed = this.#options.connection()?.flush()
    // A broker that went away in between has ended this request already.
    if (flushed) await untilAborted(flushed, this.#controller.signal)
  }

  /** What a message may hold besides some headers. */
  #payloadBytesMax(): number {
    return (this.#options.connection()?.info?.max_payload ?? 1_048_576) - 1024
  }

  #finish(type: 'done' | 'error', fields: ReplyFields, bytes?: Uint8Array): void {
    if (this.#isOver) return
    this.#publish(type, fields, bytes)
    this.#isOver = true
  }

  #publish(type: ReplyType, fields: ReplyFields = {}, bytes?: Uint8Array): void {
    if (this.#isOver) return
    const isCounted = type !== 'ack' && type !== 'hb' && this.#hasCap('seq')
    const sequence = isCounted ? this.#sequence++ : undefined
    this.#options
      .connection()
      ?.publish(this.#options.inbox, bytes, { headers: replyHeaders(type, { ...fields, sequence }) })
  }

  #touch(): void {
    const { idleTimeoutMs, clock } = this.#options
    if (idleTimeoutMs === 0 || this.#isOver) return
    this.#idle?.cancel()
    this.#idle = clock.setTimer(idleTimeoutMs, () =>
      this.fail(`engine was silent for more than ${idleTimeoutMs} ms`, 504),
    )
  }
}

/** Header names in lower case; the body of the reference's form is JSON unless something else is said. */
function defaulted(head: EnvelopeHead): Record<string, string> {
  if (!head.headers) return {}
  if (head.method === 'GET' || head.caps.includes('raw')) return { ...head.headers }
  return { 'content-type': 'application/json', ...head.headers }
}
