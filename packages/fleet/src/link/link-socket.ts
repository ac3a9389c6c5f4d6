import { LinkProtocolError } from '../errors.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { Logger } from '../ports/logger.js'
import { decodeFrame, encodeFrame } from './codec.js'
import type { LinkFrame } from './frames.js'
import type { LinkLimits } from './limits.js'
import type { LinkChannel } from './link-channel.js'
import { Liveness } from './liveness.js'
import { type Priority, SendQueue } from './send-queue.js'

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

/** Makes a frame at the moment in which it is sent; undefined when it is not wanted any more. */
export type MakeFrame = () => LinkFrame | undefined

interface PacedFrame {
  readonly make: MakeFrame
  readonly resolve: (wasMade: boolean) => void
  readonly reject: (error: unknown) => void
}

/** A peer that does not answer our close is cut off after this long. */
const closeTimeoutMs = 1_000
/** A close message of the WebSocket protocol has room for 123. */
const reasonBytesMax = 120

/**
 * One open channel, spoken in frames: bounds what waits for it, gives each stream its turn, and watches whether the peer lives.
 * Small frames (`send`) go out at once; bulk (`sendPaced`) only while little waits, so that little is ever ahead of them.
 */
export class LinkSocket {
  readonly #channel: LinkChannel
  readonly #limits: LinkLimits
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #handlers: LinkSocketHandlers
  readonly #liveness: Liveness
  readonly #paced = new SendQueue<PacedFrame>()
  readonly #onFlushed = () => this.#releasePaced()
  readonly #barriers = new Map<number, () => void>()
  /** Resolves when the channel itself is closed; `onClose` may come earlier. */
  readonly closed: Promise<void>
  #lastBarrier = 0
  #cutOff: Timer | undefined
  #isOver = false
  #isClosed = false

  constructor(
    channel: LinkChannel,
    handlers: LinkSocketHandlers,
    options: { limits: LinkLimits; clock: Clock; logger: Logger },
  ) {
    this.#channel = channel
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
    channel.open({
      onHeard: () => {
        this.#liveness.heard()
        this.#checkBuffered()
      },
      onMessage: (message) => this.#onMessage(message),
      onFault: (code, reason) => this.#onFault(code, reason),
      onClose: (code, reason) => {
        this.#isClosed = true
        this.#cutOff?.cancel()
        markClosed()
        this.#finish({ code, reason })
      },
    })
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** Sends now, however much waits already. For small frames, and where order allows no waiting. */
  send(frame: LinkFrame): void {
    if (this.#isOver) return
    this.#channel.send(encodeFrame(frame, this.#limits.frameBytesMax), this.#onFlushed)
    this.#checkBuffered()
  }

  /**
   * Sends when no more than the high-water mark waits and it is the stream's turn. `make` is called at that moment.
   * @returns whether `make` was called, which it is not once the connection is over; at once when nothing had to wait, and
   *   rejects with, or throws, what `make` throws
   */
  sendPaced(streamId: number, priority: Priority, make: MakeFrame): boolean | Promise<boolean> {
    if (this.#isOver) return false
    if (this.#paced.size === 0 && this.#hasRoom) {
      const frame = make()
      if (frame) this.send(frame)
      return true
    }
    return new Promise((resolve, reject) => {
      this.#paced.push(streamId, priority, { make, resolve, reject })
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
    const cut = Buffer.from(reason).subarray(0, reasonBytesMax).toString()
    this.#channel.close(code, cut.replace(/\uFFFD+$/, ''))
    this.#cutOffLater()
  }

  /** Ends now. */
  terminate(reason: string): void {
    this.#finish({ code: 1006, reason })
    this.#channel.terminate()
  }

  #onMessage(message: Uint8Array): void {
    if (this.#isOver) return
    try {
      const frame = decodeFrame(message, this.#limits.frameBytesMax)
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

  #onFault(code: number, reason: string): void {
    this.#finish({ code, reason })
    this.#channel.close(code, '')
    this.#cutOffLater()
  }

  #cutOffLater(): void {
    if (this.#isClosed) return
    this.#cutOff ??= this.#clock.setTimer(closeTimeoutMs, () => this.#channel.terminate())
  }

  #passBarrier(streamId: number): void {
    this.#barriers.get(streamId)?.()
    this.#barriers.delete(streamId)
  }

  #releasePaced(): void {
    while (!this.#isOver && this.#hasRoom) {
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

  get #hasRoom(): boolean {
    return this.#channel.bufferedBytes <= this.#limits.highWaterBytes
  }

  #checkBuffered(): void {
    if (this.#channel.bufferedBytes > this.#limits.socketBufferBytesMax) {
      this.terminate(`peer does not read: more than ${this.#limits.socketBufferBytesMax} bytes wait for it`)
    }
  }

  #finish(closed: LinkClosed): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#liveness.stop()
    for (let next = this.#paced.shift(); next; next = this.#paced.shift()) next.resolve(false)
    for (const streamId of [...this.#barriers.keys()]) this.#passBarrier(streamId)
    this.#handlers.onClose(closed)
  }
}
