import type { Duplex } from 'node:stream'
import type { RawData, WebSocket } from 'ws'
import { LinkProtocolError } from '../errors.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { Logger } from '../ports/logger.js'
import { decodeFrame, encodeFrame } from './codec.js'
import type { LinkFrame } from './frames.js'
import type { LinkLimits } from './limits.js'
import { Liveness } from './liveness.js'

/** Why a connection ended. `code` is the WebSocket close code, 1006 when there was none. */
export interface LinkClosed {
  readonly code: number
  readonly reason: string
}

/** What the socket does not answer by itself. */
export type TalkFrame = Exclude<LinkFrame, { type: 'ping' | 'pong' }>

export interface LinkSocketHandlers {
  /** May throw LinkProtocolError, which ends the connection with code 1002. */
  onFrame(frame: TalkFrame): void
  /** Called once, in the turn in which the connection is known to be over. */
  onClose(closed: LinkClosed): void
}

interface PacedFrame {
  readonly make: () => LinkFrame | undefined
  readonly resolve: (wasMade: boolean) => void
  readonly reject: (error: unknown) => void
}

/** A peer that does not answer our close is cut off after this long. */
const closeTimeoutMs = 1_000

/** One open WebSocket, spoken in frames: bounds what waits for it, and watches whether the peer lives. */
export class LinkSocket {
  readonly #ws: WebSocket
  readonly #limits: LinkLimits
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #handlers: LinkSocketHandlers
  readonly #liveness: Liveness
  readonly #paced: PacedFrame[] = []
  readonly #onFlushed = () => this.#releasePaced()
  readonly #barriers = new Map<number, () => void>()
  readonly #markClosed: () => void
  /** Resolves when the socket itself is closed; `onClose` may come earlier. */
  readonly closed: Promise<void>
  #lastBarrier = 0
  #error: Error | undefined
  #isOver = false

  /** @param raw the socket under `ws`: parts of frames count as signs of life */
  constructor(
    ws: WebSocket,
    raw: Duplex,
    handlers: LinkSocketHandlers,
    options: { limits: LinkLimits; clock: Clock; logger: Logger },
  ) {
    this.#ws = ws
    this.#limits = options.limits
    this.#clock = options.clock
    this.#logger = options.logger
    this.#handlers = handlers
    this.#liveness = new Liveness({
      clock: options.clock,
      pingIntervalMs: options.limits.pingIntervalMs,
      livenessTimeoutMs: options.limits.livenessTimeoutMs,
      onPing: () => this.send({ type: 'ping', streamId: 0 }),
      onGone: () => this.terminate(`nothing heard for ${options.limits.livenessTimeoutMs} ms`),
    })
    let markClosed = () => {}
    this.closed = new Promise((resolve) => {
      markClosed = resolve
    })
    this.#markClosed = markClosed
    raw.on('data', () => this.#liveness.heard())
    ws.on('message', (data, isBinary) => this.#onMessage(data, isBinary))
    ws.on('ping', () => this.#checkBuffered())
    ws.on('error', (error) => this.#onError(error))
    ws.on('close', (code, reason) => {
      this.#markClosed()
      this.#finish({ code, reason: reason.toString() || this.#error?.message || 'connection closed' })
    })
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** Sends now, however much waits already. For small frames, and where order allows no waiting. */
  send(frame: LinkFrame): void {
    if (this.#isOver) return
    this.#ws.send(encodeFrame(frame, this.#limits.frameBytesMax), this.#onFlushed)
    this.#checkBuffered()
  }

  /**
   * Sends when less than the high-water mark waits, in order of asking. `make` is called at that moment; undefined sends nothing.
   * @returns whether `make` was called, which it is not once the connection is over; rejects with what `make` throws
   */
  sendPaced(make: () => LinkFrame | undefined): Promise<boolean> {
    if (this.#isOver) return Promise.resolve(false)
    return new Promise((resolve, reject) => {
      this.#paced.push({ make, resolve, reject })
      this.#releasePaced()
    })
  }

  /** Resolves when the peer has read everything sent so far, or the connection is over. */
  barrier(): Promise<void> {
    if (this.#isOver) return Promise.resolve()
    this.#lastBarrier = (this.#lastBarrier % 0xffff_ffff) + 1
    const streamId = this.#lastBarrier
    return new Promise((resolve) => {
      this.#barriers.set(streamId, resolve)
      this.send({ type: 'ping', streamId })
    })
  }

  /** Ends politely, with what was sent before. */
  close(code: number, reason: string): void {
    if (this.#isOver) return
    this.#finish({ code, reason })
    // The protocol has room for 123 bytes of reason.
    this.#ws.close(
      code,
      Buffer.from(reason)
        .subarray(0, 120)
        .toString()
        .replace(/\uFFFD+$/, ''),
    )
    this.#cutOffLater()
  }

  /** Ends now. */
  terminate(reason: string): void {
    this.#finish({ code: 1006, reason })
    this.#ws.terminate()
  }

  #onMessage(data: RawData, isBinary: boolean): void {
    if (this.#isOver) return
    try {
      if (!isBinary) throw new LinkProtocolError('text message; frames are binary')
      const frame = decodeFrame(data as Buffer, this.#limits.frameBytesMax)
      if (frame.type === 'ping') this.send({ type: 'pong', streamId: frame.streamId })
      else if (frame.type === 'pong') this.#passBarrier(frame.streamId)
      else this.#handlers.onFrame(frame)
    } catch (error) {
      if (error instanceof LinkProtocolError) {
        this.close(1002, error.message)
        return
      }
      // A fault of ours must not end a process that serves others.
      const message = error instanceof Error ? error.message : String(error)
      this.#logger.error({ error: message }, 'link frame handler failed')
      this.close(1011, 'internal error')
    }
  }

  /** What the WebSocket itself finds wrong, it closes by itself; what the socket finds wrong ends in a close event. */
  #onError(error: Error): void {
    this.#error = error
    const cause = 'code' in error && typeof error.code === 'string' ? error.code : ''
    if (!cause.startsWith('WS_ERR_')) return
    this.#finish({ code: cause === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH' ? 1009 : 1002, reason: error.message })
    this.#cutOffLater()
  }

  #cutOffLater(): void {
    const timer: Timer = this.#clock.setTimer(closeTimeoutMs, () => this.#ws.terminate())
    this.#ws.once('close', () => timer.cancel())
  }

  #passBarrier(streamId: number): void {
    this.#barriers.get(streamId)?.()
    this.#barriers.delete(streamId)
  }

  #releasePaced(): void {
    while (!this.#isOver && this.#ws.bufferedAmount <= this.#limits.highWaterBytes) {
      const next = this.#paced.shift()
      if (!next) return
      // A fault of one stream is told to that one, whoever happened to make room.
      try {
        const frame = next.make()
        if (frame) this.send(frame)
        next.resolve(true)
      } catch (error) {
        next.reject(error)
      }
    }
  }

  #checkBuffered(): void {
    if (this.#ws.bufferedAmount > this.#limits.socketBufferBytesMax) {
      this.terminate(`peer does not read: more than ${this.#limits.socketBufferBytesMax} bytes wait for it`)
    }
  }

  #finish(closed: LinkClosed): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#liveness.stop()
    for (const { resolve } of this.#paced.splice(0)) resolve(false)
    for (const streamId of [...this.#barriers.keys()]) this.#passBarrier(streamId)
    this.#handlers.onClose(closed)
  }
}
