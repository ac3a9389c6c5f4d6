import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { Clock } from '@infera/fleet'
import { ServerError } from '../errors.js'

/** Idle keep-alive, above the 60 s that load balancers commonly keep a connection for. */
const keepAliveTimeoutMs = 75_000
/** Time a client has for its request head. */
const headersTimeoutMs = 60_000
/** Time a client has for the TLS handshake; only a client that shows nothing takes long. */
const handshakeTimeoutMs = 10_000

/** Certificate and key, PEM. */
export interface TlsIdentity {
  readonly cert: string
  readonly key: string
}

/**
 * An HTTP or HTTPS listener that can be ended well: node's own `close` also waits for connections that never sent a request, and for
 * those that were upgraded, however long they stay.
 */
export class HttpListener {
  readonly server: Server | TlsServer
  readonly #clock: Clock
  readonly #scheme: 'http' | 'https'
  /** Every open connection with the number of its requests that are not answered; upgraded ones are not in it. */
  readonly #connections = new Map<Socket, number>()
  readonly #upgraded = new Set<Socket>()
  /** With TLS: what the connections run over, from before their handshake. */
  readonly #underTls = new Set<Socket>()
  #isDraining = false
  #onIdle: () => void = () => {}

  /** @throws ServerError `INFERA_SERVER_OPTIONS` when certificate and key cannot be used */
  constructor(onRequest: RequestListener, clock: Clock, tls?: TlsIdentity) {
    this.#clock = clock
    this.#scheme = tls ? 'https' : 'http'
    const timeouts = { keepAliveTimeout: keepAliveTimeoutMs, headersTimeout: headersTimeoutMs }
    this.server = tls ? tlsServer(tls, timeouts) : createServer(timeouts)
    this.server.requestTimeout = 0 // a 128 MiB body over a slow line takes as long as it takes
    if (tls) this.server.on('connection', (socket: Socket) => this.#onRawConnection(socket))
    this.server.on(tls ? 'secureConnection' : 'connection', (socket: Socket) => this.#onConnection(socket))
    this.server.on('request', (req: IncomingMessage, res: ServerResponse) => this.#onRequest(req, res))
    this.server.on('request', onRequest)
    this.server.on('upgrade', ({ socket }: IncomingMessage) => this.#onUpgrade(socket))
  }

  /**
   * Listens and resolves with the base URL.
   * @throws ServerError `INFERA_SERVER_LISTEN` saying which flag to change
   */
  listen(host: string, port: number): Promise<string> {
    return new Promise((resolve, reject) => {
      const onError = (error: NodeJS.ErrnoException) => reject(listenError(error, host, port))
      this.server.once('error', onError)
      this.server.listen(port, host, () => {
        this.server.removeListener('error', onError)
        resolve(baseUrl(this.#scheme, this.server.address() as AddressInfo))
      })
    })
  }

  /** Takes no new connection and no further request on open ones; resolves when the running ones ended or the grace is over. */
  async drain(graceMs: number): Promise<void> {
    this.#isDraining = true
    if (this.server.listening) this.server.close()
    for (const [socket, running] of this.#connections) if (running === 0) socket.destroy()
    if (this.#connections.size === 0) return
    await new Promise<void>((resolve) => {
      const timer = this.#clock.setTimer(graceMs, resolve)
      this.#onIdle = () => {
        timer.cancel()
        resolve()
      }
    })
  }

  /** Ends every connection now; resolves when none is left. */
  async close(): Promise<void> {
    this.#isDraining = true
    const closed = new Promise<void>((resolve) => {
      if (this.server.listening) this.server.close(() => resolve())
      else resolve()
    })
    for (const socket of [...this.#connections.keys(), ...this.#upgraded, ...this.#underTls]) socket.destroy()
    await closed
  }

  #onRawConnection(socket: Socket): void {
    this.#underTls.add(socket)
    socket.once('close', () => this.#underTls.delete(socket))
  }

  #onConnection(socket: Socket): void {
    if (this.#isDraining) {
      // Its TLS handshake was under way when no further connection was to be taken.
      socket.destroy()
      return
    }
    this.#connections.set(socket, 0)
    socket.once('close', () => {
      this.#connections.delete(socket)
      this.#upgraded.delete(socket)
      if (this.#connections.size === 0) this.#onIdle()
    })
  }

  #onRequest({ socket }: IncomingMessage, res: ServerResponse): void {
    this.#connections.set(socket, (this.#connections.get(socket) ?? 0) + 1)
    res.once('close', () => {
      const running = (this.#connections.get(socket) ?? 1) - 1
      if (this.#connections.has(socket)) this.#connections.set(socket, running)
      if (this.#isDraining && running === 0) socket.end()
    })
  }

  #onUpgrade(socket: Socket): void {
    this.#connections.delete(socket)
    this.#upgraded.add(socket)
    if (this.#connections.size === 0) this.#onIdle()
  }
}

function listenError(error: NodeJS.ErrnoException, host: string, port: number): ServerError {
  const why =
    error.code === 'EADDRINUSE'
      ? `port ${port} on ${host} is in use; choose another with --port, or --port 0 for any free one`
      : error.code === 'EACCES'
        ? `no permission to listen on port ${port}; choose one above 1023 with --port`
        : `cannot listen on ${host}:${port}: ${error.message}`
  return new ServerError('INFERA_SERVER_LISTEN', why, { cause: error })
}

function tlsServer(
  tls: TlsIdentity,
  timeouts: { keepAliveTimeout: number; headersTimeout: number },
): TlsServer {
  try {
    return createTlsServer({
      ...timeouts,
      ...tls,
      handshakeTimeout: handshakeTimeoutMs,
      ALPNProtocols: ['http/1.1'],
    })
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      `certificate and key for TLS cannot be used: ${why}; give PEM files that belong together with --tls-cert and --tls-key`,
      { cause: error },
    )
  }
}

function baseUrl(scheme: string, address: AddressInfo): string {
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address
  return `${scheme}://${host}:${address.port}`
}
