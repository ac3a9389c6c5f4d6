import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import type { Router } from '../../src/index.js'
import { chatBody } from './fleet.js'

export interface HttpAnswer {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  readonly body: Buffer
  /** The connection broke before the end of the answer. */
  readonly isCut: boolean
}

/** A node:http server that does nothing but hand requests to a router. */
export class HttpFace implements AsyncDisposable {
  /** Fulfilled once for each request that `handle` is done with, whatever the end. */
  readonly handled: Promise<void>[] = []
  readonly #server: Server

  constructor(router: Pick<Router, 'handle'>) {
    this.#server = createServer((req, res) => {
      this.handled.push(router.handle(req, res))
    })
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return this
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Resolves when every connection is gone. */
  async connectionsGone(): Promise<void> {
    for (;;) {
      const count = await new Promise<number>((resolve, reject) =>
        this.#server.getConnections((error, open) => (error ? reject(error) : resolve(open))),
      )
      if (count === 0) return
      await new Promise((resolve) => setImmediate(resolve))
    }
  }

  async post(
    body: Uint8Array | string | Record<string, unknown> = chatBody(),
    {
      path = '/v1/chat/completions',
      headers = {},
      isChunked = false,
    }: { path?: string; headers?: Record<string, string>; isChunked?: boolean } = {},
  ): Promise<HttpAnswer> {
    const bytes =
      typeof body === 'string' || body instanceof Uint8Array ? Buffer.from(body) : JSON.stringify(body)
    const { incoming } = await this.open(bytes, { path, headers, isChunked })
    return readAnswer(incoming)
  }

  /** Sends a request and resolves with the answer's head. */
  async open(
    body: Uint8Array | string,
    {
      path = '/v1/chat/completions',
      headers = {},
      isChunked = false,
    }: { path?: string; headers?: Record<string, string>; isChunked?: boolean } = {},
  ): Promise<{ incoming: IncomingMessage; abort: () => void }> {
    const request = httpRequest({
      host: '127.0.0.1',
      port: this.port,
      method: 'POST',
      path,
      agent: false,
      headers: {
        'content-type': 'application/json',
        ...(isChunked ? { 'transfer-encoding': 'chunked' } : { 'content-length': Buffer.byteLength(body) }),
        ...headers,
      },
    })
    const incoming = await new Promise<IncomingMessage>((resolve, reject) => {
      let answer: IncomingMessage | undefined
      request.on('response', (message) => {
        answer = message
        resolve(message)
      })
      // Once the answer is there its reader sees how it ends.
      request.on('error', (error) => {
        if (!answer) reject(error)
      })
      request.end(body)
    })
    return { incoming, abort: () => request.destroy() }
  }

  /** A connection on which a test writes what it likes. */
  async socket(): Promise<Socket> {
    const socket = connect(this.port, '127.0.0.1')
    await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
    socket.on('error', () => {
      // Tests look at what was received; a reset after it is the server's right.
    })
    return socket
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve))
    this.#server.closeAllConnections()
    await closed
  }
}

/** An HTTP head with a body that a client sends as it is. */
export function rawPost(body: string, headers: readonly string[] = []): string {
  const lines = [
    'POST /v1/chat/completions HTTP/1.1',
    'host: localhost',
    'content-type: application/json',
    ...(headers.some((line) => line.startsWith('content-length'))
      ? headers
      : [`content-length: ${Buffer.byteLength(body)}`, ...headers]),
  ]
  return `${lines.join('\r\n')}\r\n\r\n${body}`
}

export async function readAnswer(incoming: IncomingMessage): Promise<HttpAnswer> {
  const parts: Buffer[] = []
  let isCut = false
  try {
    for await (const part of incoming) parts.push(part as Buffer)
  } catch {
    isCut = true
  }
  return {
    status: incoming.statusCode ?? 0,
    headers: incoming.headers,
    body: Buffer.concat(parts),
    isCut: isCut || !incoming.complete,
  }
}

/** Everything that comes until the server ends the connection. */
export async function readToEnd(socket: Socket): Promise<string> {
  const parts: Buffer[] = []
  socket.on('data', (part) => parts.push(part))
  await new Promise((resolve) => socket.once('close', resolve))
  return Buffer.concat(parts).toString('utf8')
}
