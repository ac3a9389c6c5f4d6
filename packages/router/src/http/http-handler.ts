import type { IncomingMessage, ServerResponse } from 'node:http'
import { type Clock, sleep } from '@infera/fleet'
import { readBody } from './body-reader.js'
import type { FaceAnswer, OpenAiFace } from './openai-face.js'
import { relay } from './relay.js'

/** How long a client that still sends a refused body may take to read why. */
const lingerMs = 2_000

/** A router's face for node:http. */
export class HttpHandler {
  readonly #face: OpenAiFace
  readonly #clock: Clock

  constructor(face: OpenAiFace, clock: Clock) {
    this.#face = face
    this.#clock = clock
  }

  /** Answers one request; resolves when the answer has been written or the client is gone. Never rejects for either's fault. */
  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const client = new AbortController()
    const leave = () => client.abort(new Error('the client left'))
    const onClose = () => {
      if (!res.writableFinished) leave()
    }
    // A response whose connection fails closes, which is where that is dealt with.
    res.on('error', () => {}).once('close', onClose)
    if (res.destroyed) onClose()
    let answer: FaceAnswer | undefined
    try {
      answer = await this.#face.answer({
        method: req.method ?? '',
        paths: pathsOf(req),
        headers: req.headers,
        readBody: (bytesMax) => readBody(req, bytesMax, leave),
        signal: client.signal,
      })
      await this.#send(answer, req, res)
    } catch (error) {
      if (answer && !client.signal.aborted) this.#face.report(error, answer.requestId)
      // Too late for a status, and an answer that merely stopped would look complete. Whatever still runs for it ends.
      res.destroy()
      leave()
    } finally {
      res.off('close', onClose)
    }
  }

  async #send(answer: FaceAnswer, req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { status, headers, body, isBodyRefused } = answer
    for (const [name, value] of Object.entries(headers)) res.setHeader(name, value)
    if (!(body instanceof Uint8Array)) {
      res.writeHead(status)
      if (await relay(body, res)) res.end()
      return
    }
    if (isBodyRefused) res.setHeader('connection', 'close')
    res.writeHead(status)
    req.resume()
    if (isBodyRefused) this.#linger(body, req, res)
    else res.end(body)
  }

  /** Answers while the body is still coming: the rest is read and dropped, or the connection's end could overtake the answer. */
  #linger(body: Uint8Array, req: IncomingMessage, res: ServerResponse): void {
    res.write(body)
    const sent = new AbortController()
    req.once('end', () => sent.abort())
    req.once('close', () => sent.abort())
    const end = () => {
      res.end(() => req.destroy())
    }
    void sleep(this.#clock, lingerMs, sent.signal).then(end, end)
  }
}

/** Express and its like cut off of `url` what a handler is mounted at, and keep the whole as `originalUrl`. */
function pathsOf(req: IncomingMessage & { readonly originalUrl?: unknown }): [string, ...string[]] {
  const path = pathOf(req.url ?? '/')
  return typeof req.originalUrl === 'string' ? [path, pathOf(req.originalUrl)] : [path]
}

function pathOf(target: string): string {
  try {
    return new URL(target, 'http://localhost').pathname
  } catch {
    return target // no URL, so no path of ours either
  }
}
