import { LinkProtocolError, LinkRefusedError } from '../errors.js'
import { type Clock, sleep, type Timer } from '../ports/clock.js'
import type { LoadReport } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import { parseServerRecord, type ServerRecord } from '../records/server-record.js'
import type { WorkerRecord } from '../records/worker-record.js'
import type { FleetSettings } from '../settings.js'
import { Backoff } from './backoff.js'
import { takenOverCode, tokenRevokedCode } from './close-codes.js'
import { Load, linkProtocolVersion } from './frames.js'
import { type LinkChannel, LinkDialError, type LinkDialer, type LinkTarget } from './link-channel.js'
import { type LinkClosed, LinkSocket, type TalkFrame } from './link-socket.js'
import { askToken, type WorkerToken } from './tokens.js'
import { untilAborted } from './until-aborted.js'
import { WorkerConnection, type WorkerConnectionOptions } from './worker-connection.js'

/** What a server said when it let us in. */
export interface LinkWelcome extends LinkTarget {
  readonly server: ServerRecord
  readonly settings: FleetSettings
}

export type MembershipEvent =
  | ({ readonly type: 'connecting' } & LinkTarget)
  | ({ readonly type: 'welcomed' } & LinkWelcome)
  | ({
      readonly type: 'refused'
      readonly error: LinkRefusedError
      /** Whether this server is not tried again. */
      readonly isFinal: boolean
    } & LinkTarget)
  | ({
      readonly type: 'disconnected'
      readonly reason: string
      /** Until the next attempt; undefined when there will be none, or not before another connection is down. */
      readonly retryInMs: number | undefined
    } & LinkTarget)
  /** This target leads to a server that is joined already; it is not tried again before that connection is down. */
  | ({ readonly type: 'parked'; readonly serverId: string } & LinkTarget)

export interface MembershipOptions extends WorkerConnectionOptions {
  readonly target: LinkTarget
  /** The record as it is at this moment. */
  readonly record: () => WorkerRecord
  readonly settings: FleetSettings
  readonly version: string
  readonly token: WorkerToken
  readonly load: (() => LoadReport) | undefined
  readonly loadIntervalMs: number
  readonly connectTimeoutMs: number
  readonly retriesRefusal: boolean
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly dial: LinkDialer
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
  /** Whether another target led to this server, and is connected to it. */
  readonly isReachedOtherwise: (serverId: string) => boolean
  readonly onEvent: (event: MembershipEvent) => void
}

interface Ended {
  readonly reason: string
  readonly code: number
  readonly refusal?: LinkRefusedError
  /** A refusal that is worth another attempt soon. */
  readonly mayChange?: boolean
}

/** A worker's place in the fleet of one server: connects, and again when it is cut off. */
export class Membership {
  readonly #options: MembershipOptions
  readonly #backoff: Backoff
  readonly #stop = new AbortController()
  #socket: LinkSocket | undefined
  #welcome: LinkWelcome | undefined
  #isWelcome = false
  #isRefused = false
  #isRetired = false
  /** Whether the last connection was closed for the sake of a newer one of this worker's id. */
  #wasTakenOver = false
  #isParked = false
  #hasEnded = false
  #closeGently = true
  #running: Promise<void> | undefined
  /** Ends the present wait, whatever it is for. */
  #wake = () => {}

  constructor(options: MembershipOptions) {
    this.#options = options
    this.#backoff = new Backoff({ ...options.backoff, random: options.random })
  }

  /** The newest welcome, of a connection that may be over. */
  get welcome(): LinkWelcome | undefined {
    return this.#welcome
  }

  get isConnected(): boolean {
    return this.#isWelcome
  }

  /** Whether the server has turned this worker away for good. */
  get isRefused(): boolean {
    return this.#isRefused
  }

  get isRetired(): boolean {
    return this.#isRetired
  }

  /** Whether nothing more will happen here. */
  get hasEnded(): boolean {
    return this.#hasEnded
  }

  /** Resolves when nothing more will happen here. */
  start(): Promise<void> {
    this.#running ??= this.#run()
    return this.#running
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

  /**
   * Connects no more. A connection that lives stays until it is down: that a name server or a registry no longer names a
   * server does not say that it is gone, and what runs over the connection should not pay for a doubt. A server that is gone
   * ends the connection by itself.
   */
  retire(): void {
    if (this.#isRetired) return
    this.#isRetired = true
    if (!this.#isWelcome) this.#end()
  }

  /** Takes `retire` back, where that is still possible. */
  keep(): void {
    if (!this.#stop.signal.aborted) this.#isRetired = false
  }

  /** Some other membership was let in or cut off: what waits looks again. */
  reconsider(): void {
    if (this.#isParked !== this.#isSuperseded()) this.#wake()
  }

  #end(): void {
    if (this.#stop.signal.aborted) return
    this.#stop.abort()
    this.#wake()
    if (this.#closeGently) this.#socket?.close(1000, 'the worker leaves')
  }

  async #run(): Promise<void> {
    const { target, onEvent } = this.#options
    while (!this.#stop.signal.aborted) {
      onEvent({ type: 'connecting', ...target })
      const ended = await this.#connect()
      this.#wasTakenOver = ended.code === takenOverCode
      const isRefusalFinal = ended.refusal !== undefined && !ended.mayChange && !this.#options.retriesRefusal
      if (ended.refusal) {
        this.#isRefused = isRefusalFinal
        const fields = { ...target, reason: ended.refusal.message }
        this.#options.logger.error(fields, 'server refused this worker')
        onEvent({ type: 'refused', ...target, error: ended.refusal, isFinal: isRefusalFinal })
      }
      if (this.#isRetired) this.#stop.abort()
      if (this.#stop.signal.aborted || isRefusalFinal) {
        this.#hasEnded = true
        onEvent({ type: 'disconnected', ...target, reason: ended.reason, retryInMs: undefined })
        return
      }
      if (this.#isSuperseded()) {
        onEvent({ type: 'disconnected', ...target, reason: ended.reason, retryInMs: undefined })
      } else await this.#pause(ended)
      await this.#parkWhileReached()
    }
    this.#hasEnded = true
  }

  /** Waits before the next attempt. */
  async #pause({ code, reason, refusal, mayChange }: Ended): Promise<void> {
    const { target, clock, random, backoff, logger, onEvent } = this.#options
    // Somebody else uses our id: coming back at once would only throw that one out in turn. Nor will a refusal change soon.
    if (code === takenOverCode || (refusal && !mayChange)) this.#backoff.exhaust()
    // We have the new token, or soon will. Chance alone keeps a whole fleet from coming back in the same moment.
    const retryInMs = code === tokenRevokedCode ? backoff.firstMs * random() : this.#backoff.nextDelayMs()
    logger.warn({ ...target, reason, retryInMs }, 'link to server is down')
    onEvent({ type: 'disconnected', ...target, reason, retryInMs })
    const wake = new AbortController()
    this.#wake = () => wake.abort()
    if (this.#stop.signal.aborted) return
    await sleep(clock, retryInMs, wake.signal).catch(() => {
      // Only being woken ends a sleep early, and whoever woke us is seen in the loop's condition.
    })
  }

  /** A server lets a worker in once. Two targets that lead to it would throw each other out for ever, so one stands back. */
  async #parkWhileReached(): Promise<void> {
    const { target, logger, onEvent } = this.#options
    const serverId = this.#welcome?.server.server_id
    if (serverId === undefined || this.#stop.signal.aborted || !this.#isSuperseded()) return
    logger.info({ ...target, serverId }, 'this server is joined already under another address')
    this.#isParked = true
    onEvent({ type: 'parked', ...target, serverId })
    while (!this.#stop.signal.aborted && this.#isSuperseded()) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    this.#isParked = false
    this.#backoff.reset()
  }

  /**
   * Whether it was another membership of this worker that took the server over. That the ids are equal is not enough: servers
   * that were given one id by mistake are two all the same, and never throw a connection out for one to the other.
   */
  #isSuperseded(): boolean {
    if (!this.#wasTakenOver || this.#welcome === undefined) return false
    return this.#options.isReachedOtherwise(this.#welcome.server.server_id)
  }

  /** One connection from beginning to end. Never rejects. */
  async #connect(): Promise<Ended> {
    const { target, token, limits, clock, connectTimeoutMs, dial } = this.#options
    const giveUp = new AbortController()
    const onStop = () => giveUp.abort(new LinkDialError('the worker leaves'))
    this.#stop.signal.addEventListener('abort', onStop, { once: true })
    const timer = clock.setTimer(connectTimeoutMs, () =>
      giveUp.abort(new LinkDialError(`no connection within ${connectTimeoutMs} ms`)),
    )
    let channel: LinkChannel
    try {
      const { signal } = giveUp
      const present = await untilAborted(askToken(token), signal)
      channel = await dial(target, { token: present, messageBytesMax: limits.frameBytesMax, signal })
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      const status = error instanceof LinkDialError ? error.status : undefined
      if (status !== 401 && status !== 403) return { code: 1006, reason }
      const refusal = new LinkRefusedError(
        `server ${target.url} refused the token (${status}): set the token that it was given`,
      )
      // A function may give another one next time.
      return { code: 1006, reason, refusal, mayChange: typeof token === 'function' }
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
          // Told to drain between the hello and its answer: nobody could be told then.
          if (record().status !== saidStatus) socket.send({ type: 'drain' })
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
    const saidStatus = head.record.status
    try {
      const { requestBodyBytesMax, requestBodiesBytesMax } = limits
      const stated = { kvEvents: kvEvents !== undefined, requestBodyBytesMax, requestBodiesBytesMax }
      socket.send({ type: 'hello', head: { ...head, ...stated } })
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
    const { target, onEvent, logger } = this.#options
    if (frame.type === 'refuse') {
      const { reason, setting, server, worker } = frame.head
      const difference = setting === undefined ? undefined : { name: setting, server, worker }
      return new LinkRefusedError(`server ${target.url} refused this worker: ${reason}`, difference)
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
    this.#welcome = { ...target, server, settings: frame.head.settings }
    logger.info({ ...target, serverId: server.server_id }, 'joined server by link')
    onEvent({ type: 'welcomed', ...this.#welcome })
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
