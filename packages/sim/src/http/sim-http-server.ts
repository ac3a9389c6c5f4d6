import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { TransportResponse } from '@infera/fleet'
import { z } from 'zod'
import type { SimEngine } from '../engine/sim-engine.js'
import { SimListenError } from '../errors.js'
import { parseOptions } from '../options.js'

export const SimHttpServerOptions = z.strictObject({
  /** Address to listen on. Loopback unless told otherwise. */
  host: z.string().min(1).default('127.0.0.1'),
  /** 0 picks a free port. */
  port: z.int().min(0).max(65_535).default(0),
})
export type SimHttpServerOptions = z.input<typeof SimHttpServerOptions>

/** An engine behind an HTTP listener of its own. It does not own the engine. */
export class SimHttpServer {
  readonly #engine: SimEngine
  readonly #options: z.output<typeof SimHttpServerOptions>
  readonly #server: Server
  #closed: Promise<void> | undefined

  /** @throws InvalidSimOptionsError naming the option and what it must be */
  constructor(engine: SimEngine, options: SimHttpServerOptions = {}) {
    this.#engine = engine
    this.#options = parseOptions(SimHttpServerOptions, options)
    this.#server = createServer((req, res) => {
      // A broken connection is how a client learns that an answer will not come.
      this.#serve(req, res).catch(() => res.destroy())
    })
  }

  /**
   * Listens. @returns the base URL, without a trailing slash
   * @throws SimListenError when the address cannot be had
   */
  start(): Promise<string> {
    const { host, port } = this.#options
    return new Promise((resolve, reject) => {
      const onError = (error: Error) =>
        reject(new SimListenError(`cannot listen on ${host}:${port}: ${error.message}`, { cause: error }))
      this.#server.once('error', onError)
      this.#server.listen(port, host, () => {
        this.#server.off('error', onError)
        const address = this.#server.address()
        const bound = typeof address === 'object' && address ? address.port : port
        resolve(`http://${host.includes(':') ? `[${host}]` : host}:${bound}`)
      })
    })
  }

  /** Takes no new connection and resolves when the running requests have ended. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= new Promise((resolve) => {
      // Its error says that it was not listening, which is what was asked for.
      this.#server.close(() => resolve())
      this.#server.closeIdleConnections()
    })
    return this.#closed
  }

  /** Breaks every connection now. Idempotent. */
  async destroy(): Promise<void> {
    const closed = this.close()
    this.#server.closeAllConnections()
    await closed
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const gone = new AbortController()
    res.once('close', () => {
      if (!res.writableFinished) gone.abort(new Error('the client left'))
      // A connection that was busy when we began to close is kept alive for a next request that nobody will answer. It
      // counts as idle only after this event.
      else if (this.#closed) setImmediate(() => this.#server.closeIdleConnections())
    })
    const method = req.method
    if (method !== 'GET' && method !== 'POST') {
      res.writeHead(405, { allow: 'GET, POST', connection: 'close' }).end()
      return
    }
    const { bodyBytesMax } = this.#engine.options
    const body = await readBody(req, bodyBytesMax)
    if (gone.signal.aborted) return
    const headers: Record<string, string> = {}
    for (const [name, value] of Object.entries(req.headers)) {
      if (typeof value === 'string') headers[name] = value
    }
    let response: TransportResponse
    try {
      response = await this.#engine.handler(
        { method, path: req.url ?? '/', headers, body },
        { signal: gone.signal },
      )
    } catch (error) {
      if (gone.signal.aborted) return
      throw error
    }
    await relay(response, req, res, gone.signal)
  }
}

/** A body just past the limit is enough for the engine to refuse it; what follows is not kept. */
async function readBody(req: IncomingMessage, bytesMax: number): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  let size = 0
  // The connection is still needed for the refusal.
  for await (const chunk of req.iterator({ destroyOnReturn: false })) {
    chunks.push(chunk)
    size += chunk.length
    if (size > bytesMax) break
  }
  return Buffer.concat(chunks)
}

async function relay(
  response: TransportResponse,
  req: IncomingMessage,
  res: ServerResponse,
  gone: AbortSignal,
): Promise<void> {
  // A request that was not read to its end cannot be followed by another one on the same connection.
  res.writeHead(response.status, { ...response.headers, ...(req.complete ? {} : { connection: 'close' }) })
  try {
    for await (const chunk of response.body) {
      if (!res.write(chunk)) await writable(res, gone)
      if (gone.aborted) return
    }
    res.end()
  } catch (error) {
    if (!gone.aborted) throw error
  }
}

function writable(res: ServerResponse, gone: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      res.off('drain', done)
      gone.removeEventListener('abort', done)
      resolve()
    }
    res.once('drain', done)
    gone.addEventListener('abort', done, { once: true })
    if (gone.aborted) done()
  })
}
