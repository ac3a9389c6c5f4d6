import { Context, Dealer, Router, type Socket, Subscriber, XPublisher } from 'zeromq'
import { z } from 'zod'
import { bound, durationMs } from '../options.js'

/** Options of every socket, for the readers' and the publishers' side alike. */
export const socketOptions = {
  /** Largest frame that is sent or taken, bytes; a peer that sends more is cut off. */
  payloadBytesMax: bound().default(8 * 1024 * 1024),
  /** Pause before the first attempt to connect again, ms; doubles up to `reconnectMaxMs`. */
  reconnectMs: durationMs().default(100),
  reconnectMaxMs: durationMs().default(5_000),
  /** A silent connection is asked this often whether it lives, ms; it is cut after three times as long. */
  heartbeatMs: durationMs().max(20_000).default(5_000),
  /** Sockets open at once. */
  socketsMax: z.int().positive().max(16_384).default(4_096),
}

export interface SocketSettings {
  readonly payloadBytesMax: number
  readonly reconnectMs: number
  readonly reconnectMaxMs: number
  readonly heartbeatMs: number
  readonly socketsMax: number
}

/** A socket and the two that watch it. */
const slotsPerSocket = 3

/** Opens sockets with bounds, and counts them. Nothing of a closed socket is sent any more. */
export class ZmqSockets {
  readonly #settings: SocketSettings
  readonly #context: Context
  readonly #open = new Set<Socket>()

  constructor(settings: SocketSettings) {
    this.#settings = settings
    // A context that blocks would hold up the exit of the process until its peers have read everything.
    this.#context = new Context({ blocky: false, maxSockets: slotsPerSocket * (settings.socketsMax + 1) })
  }

  get openCount(): number {
    return this.#open.size
  }

  /** @returns undefined at the bound */
  subscriber(host: string, receiveHighWaterMark: number): Subscriber | undefined {
    return this.#admit(() => new Subscriber({ ...this.#common(host), receiveHighWaterMark }))
  }

  /** @returns undefined at the bound */
  dealer(host: string, receiveHighWaterMark: number): Dealer | undefined {
    return this.#admit(() => new Dealer({ ...this.#common(host), receiveHighWaterMark }))
  }

  /** @returns undefined at the bound */
  publisher(host: string, sendHighWaterMark: number): XPublisher | undefined {
    // Sends never wait: what a reader has no room for is dropped for that reader.
    return this.#admit(() => new XPublisher({ ...this.#common(host), sendHighWaterMark, sendTimeout: 0 }))
  }

  /** @returns undefined at the bound */
  router(host: string, sendHighWaterMark: number): Router | undefined {
    return this.#admit(() => new Router({ ...this.#common(host), sendHighWaterMark }))
  }

  /** Idempotent. */
  close(socket: Socket): void {
    if (!this.#open.delete(socket)) return
    socket.close()
  }

  #admit<S extends Socket>(create: () => S): S | undefined {
    if (this.#open.size >= this.#settings.socketsMax) return undefined
    const socket = create()
    this.#open.add(socket)
    return socket
  }

  #common(host: string) {
    const { payloadBytesMax, reconnectMs, reconnectMaxMs, heartbeatMs } = this.#settings
    return {
      context: this.#context,
      linger: 0,
      // Names are resolved to IPv4 only, unless this is on; with it on, some would be resolved to IPv6 only.
      ipv6: host.startsWith('['),
      maxMessageSize: payloadBytesMax,
      reconnectInterval: reconnectMs,
      reconnectMaxInterval: Math.max(reconnectMs, reconnectMaxMs),
      heartbeatInterval: heartbeatMs,
      heartbeatTimeout: 3 * heartbeatMs,
      heartbeatTimeToLive: 3 * heartbeatMs,
      // For peers that do not know heartbeats.
      tcpKeepalive: 1,
      tcpKeepaliveIdle: 60,
      tcpKeepaliveInterval: 10,
      tcpKeepaliveCount: 3,
    }
  }
}
