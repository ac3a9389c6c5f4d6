import type { IncomingMessage, Server } from 'node:http'
import type { Server as HttpsServer } from 'node:https'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import { z } from 'zod'
import type { EmbeddedDiscovery, EmbeddedRegistration } from '../embedded/embedded-discovery.js'
import { FleetError, LinkProtocolError, TransportError } from '../errors.js'
import { bound, clockOption, durationMs, loggerOption, parseOptions, part, randomOption } from '../options.js'
import { sleep } from '../ports/clock.js'
import type { KvEventMessage, KvEventTransport, LoadReport } from '../ports/kv-events.js'
import type { RequestTransport } from '../ports/request-transport.js'
import { parseServerRecord, type ServerRecord } from '../records/server-record.js'
import { expandTargets } from '../records/targets.js'
import type { WorkerRecord } from '../records/worker-record.js'
import type { FleetSettings } from '../settings.js'
import { refusedCode, takenOverCode, tokenRevokedCode } from './close-codes.js'
import { type Hello, LINK_PATH } from './frames.js'
import { judgeHello } from './hello.js'
import { KvSubscription } from './kv-subscription.js'
import { LinkLimits } from './limits.js'
import type { LinkChannel } from './link-channel.js'
import { type LinkClosed, LinkSocket, type TalkFrame } from './link-socket.js'
import { Refusals, type RefusedWorker } from './refusals.js'
import { ServerConnection } from './server-connection.js'
import { AcceptedTokens, type ServerTokens, serverTokenOption, tokenDigest } from './tokens.js'
import { bearerToken, pathOf, rejectUpgrade } from './upgrade.js'
import { WebSocketChannel } from './web-socket-channel.js'

const Options = z.strictObject({
  /** Where workers are registered for as long as their connection lives. */
  discovery: part<EmbeddedDiscovery>('an EmbeddedDiscovery'),
  /** What workers are told of this server; a function is asked for each worker, for a server that learns its URL late. */
  serverRecord: part<ServerRecord | (() => ServerRecord)>('a server record or a function that gives one'),
  /** The settings that this worker must share; compared with those that it states. */
  settingsFor: part<(record: WorkerRecord) => FleetSettings>('a function').default(() => () => ({})),
  /**
   * Bearer token that workers must bring; several while one takes the place of another; or a function that is asked for
   * every connection. None: every worker is let in.
   */
  token: serverTokenOption,
  /** Connections at once; further ones are answered 503. */
  connectionsMax: bound().default(4096),
  /** Connections of which no hello has come yet; further ones are answered 503. Each may hold some 200 KiB. */
  handshakesMax: bound().default(256),
  /** How long `close` waits for running requests. */
  closeTimeoutMs: durationMs().default(30_000),
  limits: LinkLimits.prefault({}),
  clock: clockOption,
  random: randomOption,
  logger: loggerOption,
})
export type LinkServerOptions = z.input<typeof Options>

/** What may come before a hello is whole: more than its head may measure, and the least that `frameBytesMax` can be. */
const helloBytesMax = 128 * 1024

/** One connection, which becomes a member with its welcome. */
interface Session {
  /** Digest of the token that it brought; undefined where none is asked for. */
  readonly token: Buffer | undefined
  hasSpoken: boolean
  member: Member | undefined
}

interface Member {
  readonly connection: ServerConnection
  readonly registration: EmbeddedRegistration
}

/**
 * The server's end of every link: lets workers join, keeps them registered while their connection lives, and carries
 * requests to them and KV events from them.
 */
export class LinkServer {
  readonly requests: RequestTransport
  readonly kvEvents: KvEventTransport
  readonly #options: z.output<typeof Options>
  readonly #serverRecord: () => ServerRecord
  readonly #webSockets: WebSocketServer
  readonly #members = new Map<string, Member>()
  readonly #refusals: Refusals
  readonly #sessions = new Map<LinkSocket, Session>()
  readonly #tokens: AcceptedTokens
  readonly #detachers: (() => void)[] = []
  #state: 'open' | 'draining' | 'closed' = 'open'
  #handshakes = 0
  #takesRequests = true
  #closing: Promise<void> | undefined

  /**
   * @throws InvalidFleetOptionsError
   * @throws InvalidRecordError for an unusable `serverRecord`
   */
  constructor(options: LinkServerOptions) {
    this.#options = parseOptions('LinkServer', Options, options)
    const { serverRecord } = this.#options
    const fixed = typeof serverRecord === 'function' ? undefined : parseServerRecord(serverRecord)
    this.#serverRecord = () => fixed ?? parseServerRecord((serverRecord as () => ServerRecord)())
    this.#tokens = new AcceptedTokens(this.#options.token)
    this.#refusals = new Refusals(() => this.#options.clock.now())
    this.#webSockets = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: this.#options.limits.frameBytesMax,
    })
    this.requests = {
      kind: 'link',
      send: async (worker, request, { signal } = {}) => {
        signal?.throwIfAborted()
        return this.#connectionFor(worker).send(request, signal)
      },
      close: async () => {
        this.#takesRequests = false
        await this.#whenIdle()
      },
    }
    this.kvEvents = {
      kind: 'link',
      serves: (worker) => this.#members.get(worker.worker_id)?.connection.hasKvEvents ?? false,
      subscribe: (worker, { signal } = {}) => this.#subscribe(worker, signal),
    }
  }

  /**
   * Takes upgrades of an HTTP(S) server on `LINK_PATH`. Upgrades on other paths are left to other listeners, and answered
   * 404 when there are none.
   */
  attach(httpServer: Server | HttpsServer): void {
    const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (pathOf(request) === LINK_PATH) this.#onUpgrade(request, socket, head)
      else if (httpServer.listenerCount('upgrade') === 1) rejectUpgrade(socket, '404 Not Found')
    }
    httpServer.on('upgrade', onUpgrade)
    this.#detachers.push(() => httpServer.off('upgrade', onUpgrade))
  }

  /**
   * Takes a connection that did not come by HTTP, as between the parties of one process. No token is asked for.
   * @param peer names the other end in the log
   * @returns whether it was taken; it is cut off when this server is full or closing
   */
  accept(channel: LinkChannel, peer?: string): boolean {
    if (this.#state !== 'open' || this.#sessions.size >= this.#options.connectionsMax) {
      channel.terminate()
      return false
    }
    this.#converse(channel, peer, undefined)
    return true
  }

  /**
   * Accepts these tokens from now on, in place of the option `token`. Connections that brought another one are closed, with a
   * code of its own that has workers come back at once with the token they have by then. A function that gives other tokens
   * than before has the same effect when it is next asked, which is when somebody wants to connect, or here.
   * @throws InvalidFleetOptionsError, and nothing has changed then
   */
  setTokens(tokens: ServerTokens): void {
    this.#tokens.set(tokens)
    this.#closeRevoked()
  }

  /** The newest load report of a connected worker. */
  load(workerId: string): LoadReport | undefined {
    return this.#members.get(workerId)?.connection.load
  }

  /** Workers that were turned away and have not joined since, at most 256, for operators who miss one. */
  refused(): RefusedWorker[] {
    return this.#refusals.list()
  }

  /** Takes no new connection or request, waits for running requests up to `closeTimeoutMs`, then lets workers go. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Drops every connection now. Idempotent. */
  destroy(): void {
    this.#stopTaking()
    this.#state = 'closed'
    for (const socket of [...this.#sessions.keys()]) socket.terminate('the server was destroyed')
    this.#closing ??= Promise.resolve()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #close(): Promise<void> {
    if (this.#state === 'closed') return
    this.#stopTaking()
    this.#state = 'draining'
    const { clock, closeTimeoutMs } = this.#options
    const waited = new AbortController()
    await Promise.race([
      this.#whenIdle().then(() => waited.abort()),
      sleep(clock, closeTimeoutMs, waited.signal).catch(() => {
        // Aborted, because everything ended in time.
      }),
    ])
    this.#state = 'closed'
    const sockets = [...this.#sessions.keys()]
    for (const socket of sockets) socket.close(1001, 'the server closes')
    await Promise.all(sockets.map((socket) => socket.closed))
  }

  #stopTaking(): void {
    this.#takesRequests = false
    for (const detach of this.#detachers.splice(0)) detach()
  }

  async #whenIdle(): Promise<void> {
    await Promise.all([...this.#members.values()].map(({ connection }) => connection.whenIdle()))
  }

  #onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { connectionsMax, handshakesMax, limits, logger } = this.#options
    const peer = request.socket.remoteAddress
    const token = tokenDigest(bearerToken(request))
    try {
      if (this.#tokens.refresh()) this.#closeRevoked()
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      logger.error({ peer, reason }, 'link refused: the tokens to accept cannot be told')
      rejectUpgrade(socket, '503 Service Unavailable', ['retry-after: 1'])
      return
    }
    if (!this.#tokens.accepts(token)) {
      logger.warn({ peer }, 'link refused: no or wrong token')
      rejectUpgrade(socket, '401 Unauthorized', ['www-authenticate: Bearer'])
      return
    }
    const isFull = this.#sessions.size >= connectionsMax || this.#handshakes >= handshakesMax
    if (this.#state !== 'open' || isFull) {
      rejectUpgrade(socket, '503 Service Unavailable', ['retry-after: 1'])
      return
    }
    this.#webSockets.handleUpgrade(request, socket, head, (ws) => {
      const firstMessageBytesMax = Math.min(helloBytesMax, limits.frameBytesMax)
      this.#converse(new WebSocketChannel(ws, socket, { firstMessageBytesMax }), peer, token)
    })
  }

  #closeRevoked(): void {
    for (const [link, { token, member }] of [...this.#sessions]) {
      if (token === undefined || this.#tokens.accepts(token)) continue
      const workerId = member?.connection.workerId
      this.#options.logger.info({ workerId }, 'link closed: its token is no longer accepted')
      link.close(tokenRevokedCode, 'its token is no longer accepted')
    }
  }

  #converse(channel: LinkChannel, peer: string | undefined, token: Buffer | undefined): void {
    const { limits, clock, logger } = this.#options
    const session: Session = { token, hasSpoken: false, member: undefined }
    const onSpoken = () => {
      helloTimer.cancel()
      if (!session.hasSpoken) this.#handshakes -= 1
      session.hasSpoken = true
    }
    const link: LinkSocket = new LinkSocket(
      channel,
      {
        onFrame: (frame) => {
          onSpoken()
          if (session.member) session.member.connection.accept(frame)
          else this.#greet(link, session, frame)
        },
        onClose: (closed) => {
          onSpoken()
          this.#sessions.delete(link)
          this.#onClose(session.member, closed, peer)
        },
      },
      { limits, clock, logger },
    )
    const helloTimer = clock.setTimer(limits.helloTimeoutMs, () =>
      link.close(1002, `no hello within ${limits.helloTimeoutMs} ms`),
    )
    this.#handshakes += 1
    this.#sessions.set(link, session)
  }

  #greet(link: LinkSocket, session: Session, frame: TalkFrame): void {
    if (frame.type !== 'hello') throw new LinkProtocolError(`${frame.type} frame before hello`)
    const verdict = judgeHello(frame.head, this.#options.settingsFor)
    if (verdict.type === 'welcome') {
      this.#admit(link, session, verdict.record, verdict.settings, frame.head)
      return
    }
    this.#options.logger.warn({ ...verdict.refusal }, 'link refused')
    this.#refusals.add(frame.head.record, verdict.refusal)
    link.send({ type: 'refuse', head: verdict.refusal })
    link.close(refusedCode, 'refused')
  }

  #admit(
    link: LinkSocket,
    session: Session,
    record: WorkerRecord,
    settings: FleetSettings,
    hello: Hello,
  ): void {
    const workerId = record.worker_id
    const { discovery, limits, logger } = this.#options
    // The older connection goes first, with its streams and its entry, so that watchers see one worker leave and one come.
    const older = this.#members.get(workerId)
    older?.connection.socket.close(takenOverCode, 'another connection of this worker took over')
    let registration: EmbeddedRegistration
    try {
      registration = discovery.registerNow({ kind: 'worker', record })
    } catch (error) {
      if (!(error instanceof FleetError)) throw error
      logger.warn({ workerId, reason: error.message }, 'link not taken')
      link.close(1013, error.message)
      return
    }
    const onDrain = () => void registration.drain()
    const { kvEvents: hasKvEvents, requestBodyBytesMax, requestBodiesBytesMax } = hello
    const stated = { hasKvEvents, requestBodyBytesMax, requestBodiesBytesMax }
    const connection = new ServerConnection(link, { workerId, limits, onDrain, ...stated })
    // From here on the end of the connection ends the registration, even when the welcome cannot be sent.
    session.member = { connection, registration }
    this.#members.set(workerId, session.member)
    this.#refusals.remove(workerId)
    // In the turn of the registration: whoever reacts to that sends its first frame after this one.
    link.send({ type: 'welcome', head: { server: this.#serverRecord(), settings: { ...settings } } })
    logger.info({ workerId, model: record.model_name }, 'worker joined by link')
  }

  #onClose(member: Member | undefined, closed: LinkClosed, peer: string | undefined): void {
    const { logger } = this.#options
    const workerId = member?.connection.workerId
    if (closed.code === 1002 || closed.code === 1009) {
      logger.warn({ workerId, peer, ...closed }, 'link broke its protocol')
    } else logger.info({ workerId, peer, ...closed }, 'link closed')
    if (!member || workerId === undefined) return
    if (this.#members.get(workerId) === member) this.#members.delete(workerId)
    member.connection.lose(closed.reason)
    // A worker that leaves by itself closes with 1000; any other end cut it off.
    if (closed.code === 1000) void member.registration.deregister()
    else member.registration.expire()
  }

  #connectionFor(worker: WorkerRecord): ServerConnection {
    const workerId = worker.worker_id
    if (!this.#takesRequests) {
      throw new TransportError('INFERA_FLEET_CLOSED', workerId, 'link server is closed')
    }
    const member = this.#members.get(workerId)
    if (!member) {
      throw new TransportError(
        'INFERA_FLEET_UNREACHABLE',
        workerId,
        `worker '${workerId}' has no link to this server`,
      )
    }
    return member.connection
  }

  #subscribe(worker: WorkerRecord, signal: AbortSignal | undefined): AsyncIterable<KvEventMessage> {
    return {
      [Symbol.asyncIterator]: () => {
        const connection = this.#members.get(worker.worker_id)?.connection
        if (!connection?.hasKvEvents) return nothing
        const { limits, clock, random, logger } = this.#options
        return new KvSubscription(connection, {
          workerId: worker.worker_id,
          // A worker as a whole has its cache under rank 0.
          ranks: expandTargets(worker).map(({ rank }) => rank ?? 0),
          windowBytes: limits.kvWindowBytes,
          snapshotBytesMax: limits.snapshotBytesMax,
          // By chance up to half of it less, so that many subscriptions do not come back in step.
          resubscribeDelayMs: limits.kvResubscribeDelayMs * (0.5 + 0.5 * random()),
          clock,
          logger,
          signal,
        })
      },
    }
  }
}

const nothing: AsyncIterator<KvEventMessage> = {
  next: async () => ({ value: undefined, done: true }),
}
