import { LinkProtocolError, LinkRefusedError } from '../errors.js'
import { type Clock, sleep, type Timer } from '../ports/clock.js'
import type { LoadReport } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import { parseServerRecord, type ServerRecord } from '../records/server-record.js'
import type { WorkerRecord } from '../records/worker-record.js'
import type { FleetSettings } from '../settings.js'
import { Backoff } from './backoff.js'
import { takenOverCode } from './close-codes.js'
import { Load, linkProtocolVersion } from './frames.js'
import { type LinkChannel, LinkDialError, type LinkDialer } from './link-channel.js'
import { type LinkClosed, LinkSocket, type TalkFrame } from './link-socket.js'
import { WorkerConnection, type WorkerConnectionOptions } from './worker-connection.js'

/** What a server said when it let us in. */
export interface LinkWelcome {
  readonly url: string
  readonly server: ServerRecord
  readonly settings: FleetSettings
}

export type MembershipEvent =
  | { readonly type: 'connecting'; readonly url: string }
  | ({ readonly type: 'welcomed' } & LinkWelcome)
  | { readonly type: 'refused'; readonly url: string; readonly error: LinkRefusedError }
  | {
      readonly type: 'disconnected'
      readonly url: string
      readonly reason: string
      /** Until the next attempt; undefined when there will be none. */
      readonly retryInMs: number | undefined
    }

export interface MembershipOptions extends WorkerConnectionOptions {
  readonly url: string
  /** The record as it is at this moment. */
  readonly record: () => WorkerRecord
  readonly settings: FleetSettings
  readonly version: string
  readonly token: string | undefined
  readonly load: (() => LoadReport) | undefined
  readonly loadIntervalMs: number
  readonly connectTimeoutMs: number
  readonly retriesRefusal: boolean
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly dial: LinkDialer
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
  readonly onEvent: (event: MembershipEvent) => void
}

interface Ended {
  readonly reason: string
  readonly code: number
  readonly refusal?: LinkRefusedError
}

/** A worker's place in the fleet of one server: connects, and again when it is cut off. */
export class Membership {
  readonly #options: MembershipOptions
  readonly #backoff: Backoff
  readonly #stop = new AbortController()
  #socket: LinkSocket | undefined
  #isWelcome = false
  #closeGently = true
  #running: Promise<void> | undefined

  constructor(options: MembershipOptions) {
    this.#options = options
    this.#backoff = new Backoff({ ...options.backoff, random: options.random })
  }

  start(): void {
    this.#running ??= this.#run()
  }

  /** Asks the server for no new work; resolves when everything that it sent before it knew has arrived. */
  async drain(): Promise<void> {
    if (!this.#isWelcome) return
    this.#socket?.send({ type: 'drain' })
    await this.#socket?.barrier()
  }

  /** Leaves. Resolves when the socket is closed. */
  async close(): Promise<void> {
    this.#end()
    await this.#running
  }

  destroy(): void {
    this.#closeGently = false
    this.#end()
    this.#socket?.terminate('the worker was destroyed')
  }

  #end(): void {
    if (this.#stop.signal.aborted) return
    this.#stop.abort()
    if (this.#closeGently) this.#socket?.close(1000, 'the worker leaves')
  }

  async #run(): Promise<void> {
    const { url, clock, logger, onEvent, retriesRefusal } = this.#options
    while (!this.#stop.signal.aborted) {
      onEvent({ type: 'connecting', url })
      const ended = await this.#connect()
      if (ended.refusal) {
        logger.error({ url, reason: ended.refusal.message }, 'server refused this worker')
        onEvent({ type: 'refused', url, error: ended.refusal })
      }
      const isFinal = this.#stop.signal.aborted || (ended.refusal !== undefined && !retriesRefusal)
      if (isFinal) {
        onEvent({ type: 'disconnected', url, reason: ended.reason, retryInMs: undefined })
        return
      }
      // Somebody else uses our id: coming back at once would only throw that one out in turn. Nor will a refusal change soon.
      if (ended.code === takenOverCode || ended.refusal) this.#backoff.exhaust()
      const retryInMs = this.#backoff.nextDelayMs()
      logger.warn({ url, reason: ended.reason, retryInMs }, 'link to server is down')
      onEvent({ type: 'disconnected', url, reason: ended.reason, retryInMs })
      await sleep(clock, retryInMs, this.#stop.signal).catch(() => {
        // Only an abort ends a sleep early, and the loop's condition sees it.
      })
    }
  }

  /** One connection from beginning to end. Never rejects. */
  async #connect(): Promise<Ended> {
    const { url, token, limits, clock, connectTimeoutMs, dial } = this.#options
    const giveUp = new AbortController()
    const onStop = () => giveUp.abort(new LinkDialError('the worker leaves'))
    this.#stop.signal.addEventListener('abort', onStop, { once: true })
    const timer = clock.setTimer(connectTimeoutMs, () =>
      giveUp.abort(new LinkDialError(`no connection within ${connectTimeoutMs} ms`)),
    )
    let channel: LinkChannel
    try {
      channel = await dial({ url }, { token, messageBytesMax: limits.frameBytesMax, signal: giveUp.signal })
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      const status = error instanceof LinkDialError ? error.status : undefined
      if (status !== 401 && status !== 403) return { code: 1006, reason }
      const refusal = new LinkRefusedError(
        `server ${url} refused the token (${status}): set the token that it was given`,
      )
      return { code: 1006, reason, refusal }
    } finally {
      timer.cancel()
      this.#stop.signal.removeEventListener('abort', onStop)
    }
    return this.#talk(channel)
  }

  async #talk(channel: LinkChannel): Promise<Ended> {
    const { limits, clock, logger, record, settings, version, kvEvents } = this.#options
    let ended: Ended = { code: 1006, reason: 'connection closed' }
    let refusal: LinkRefusedError | undefined
    let connection: WorkerConnection | undefined
    let stopLoad = () => {}
    const socket: LinkSocket = new LinkSocket(
      channel,
      {
        onFrame: (frame) => {
          if (connection) return connection.accept(frame)
          helloTimer.cancel()
          refusal = this.#readAnswer(frame)
          if (refusal) return socket.close(1000, 'refused')
          connection = new WorkerConnection(socket, this.#options)
          stopLoad = this.#reportLoad(socket)
        },
        onClose: (closed: LinkClosed) => {
          helloTimer.cancel()
          stopLoad()
          this.#isWelcome = false
          ended = refusal ? { ...closed, reason: refusal.message, refusal } : closed
          connection?.lose(closed.reason)
        },
      },
      { limits, clock, logger },
    )
    const helloTimer = clock.setTimer(limits.helloTimeoutMs, () =>
      socket.terminate(`no answer to hello within ${limits.helloTimeoutMs} ms`),
    )
    this.#socket = socket
    // Told to leave in the turn between the opening of the channel and this one.
    if (this.#stop.signal.aborted) socket.close(1000, 'the worker leaves')
    const head = { protocol: linkProtocolVersion, version, record: record(), settings: { ...settings } }
    try {
      socket.send({ type: 'hello', head: { ...head, kvEvents: kvEvents !== undefined } })
    } catch (error) {
      // A record or settings too large for one head.
      socket.terminate(error instanceof Error ? error.message : String(error))
    }
    await socket.closed
    this.#socket = undefined
    return ended
  }

  /** @returns the refusal; undefined when the answer was a welcome */
  #readAnswer(frame: TalkFrame): LinkRefusedError | undefined {
    const { url, onEvent, logger } = this.#options
    if (frame.type === 'refuse') {
      const { reason, setting, server, worker } = frame.head
      const difference = setting === undefined ? undefined : { name: setting, server, worker }
      return new LinkRefusedError(`server ${url} refused this worker: ${reason}`, difference)
    }
    if (frame.type !== 'welcome') throw new LinkProtocolError(`${frame.type} frame before welcome`)
    let server: ServerRecord
    try {
      server = parseServerRecord(frame.head.server)
    } catch (error) {
      throw new LinkProtocolError(`welcome with an unusable server record`, { cause: error })
    }
    this.#isWelcome = true
    this.#backoff.reset()
    logger.info({ url, serverId: server.server_id }, 'joined server by link')
    onEvent({ type: 'welcomed', url, server, settings: frame.head.settings })
    return undefined
  }

  /** Tells the load now and then. @returns what ends it */
  #reportLoad(socket: LinkSocket): () => void {
    const { load, loadIntervalMs, clock, logger } = this.#options
    if (!load) return () => {}
    let timer: Timer
    const report = () => {
      try {
        socket.send({ type: 'load', head: Load.parse(load()) })
      } catch (error) {
        logger.warn({ error: error instanceof Error ? error.message : String(error) }, 'load report failed')
      }
      timer = clock.setTimer(loadIntervalMs, report)
    }
    report()
    return () => timer.cancel()
  }
}
