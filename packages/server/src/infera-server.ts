import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  type Clock,
  type Discovery,
  EmbeddedDiscovery,
  type FleetSettings,
  type LinkServer,
  type Logger,
  type Random,
  type ServerRecord,
  silentLogger,
  systemClock,
  systemRandom,
  type Timer,
} from '@infera/fleet'
import { anyModel, Router } from '@infera/router'
import { loadPromptModel, type PromptModel } from '@infera/router/prompt'
import { simModelFolder } from '@infera/sim'
import { ServerError } from './errors.js'
import { FleetPlanes } from './fleet/fleet-planes.js'
import { HttpListener } from './http/listener.js'
import { Operations } from './http/operations.js'
import { ServerMetrics } from './metrics.js'
import { InferaServerOptions, type ResolvedServerOptions, type ServedModel } from './options.js'
import { version } from './version.js'

export interface InferaServerPorts {
  /** Where workers are found, in place of what the option `discovery` names; closed with the server. */
  readonly registry?: Discovery
  readonly logger?: Logger
  readonly clock?: Clock
  readonly random?: Random
}

/** The model that is served when none is named: the small one that simulated workers bring along. */
const defaultModels = [{ name: 'infera-sim', folder: simModelFolder }]

type State = 'idle' | 'started' | 'draining' | 'closed'

/**
 * One server process: it reads options, builds discovery, transports and router, wires them and listens. Nothing here
 * decides anything about requests.
 */
export class InferaServer {
  readonly #options: ResolvedServerOptions
  readonly #logger: Logger
  readonly #ports: { clock: Clock; random: Random; logger: Logger }
  readonly #registry: Discovery | undefined
  readonly #discovery = new EmbeddedDiscovery()
  readonly #serverId = randomUUID()
  readonly #listener: HttpListener
  #joinListener: HttpListener | undefined
  #url: string | undefined
  #joinUrl: string | undefined
  #assembly: Promise<Assembly> | undefined
  #tokenTimer: Timer | undefined
  #recordSettings: ServerRecord['settings'] = {}
  #state: State = 'idle'
  #drained: Promise<void> | undefined
  #closed: Promise<void> | undefined
  #assembled: Assembly | undefined

  /** @throws ServerError `INFERA_SERVER_OPTIONS` naming the option and what it must be */
  constructor(options: InferaServerOptions = {}, ports: InferaServerPorts = {}) {
    const parsed = InferaServerOptions.safeParse(options)
    if (!parsed.success) {
      const issue = parsed.error.issues[0]
      throw new ServerError('INFERA_SERVER_OPTIONS', `option '${issue?.path.join('.')}': ${issue?.message}`)
    }
    this.#options = parsed.data
    this.#logger = ports.logger ?? silentLogger
    this.#registry = ports.registry
    this.#ports = {
      clock: ports.clock ?? systemClock,
      random: ports.random ?? systemRandom,
      logger: this.#logger,
    }
    this.#listener = new HttpListener(
      (req, res) => this.#onRequest(req, res),
      this.#ports.clock,
      this.#options.tls,
    )
  }

  /** The models whose prompts this server understands, in the order given. */
  get models(): readonly ServedModel[] {
    return this.#options.models.length > 0 ? this.#options.models : defaultModels
  }

  /**
   * The router inside, for what only it can tell.
   * @throws ServerError `INFERA_SERVER_OPTIONS` before `start` or `openJoin` has resolved
   */
  get router(): Router {
    if (!this.#assembled)
      throw new ServerError('INFERA_SERVER_OPTIONS', 'the server has no router before it is started')
    return this.#assembled.router
  }

  get state(): State {
    return this.#state
  }

  /**
   * Starts everything and listens; what was started is let go of when that fails.
   * @returns the base URL
   * @throws ServerError `INFERA_SERVER_LISTEN`; ModelFolderError naming the file and what it must hold
   */
  async start(): Promise<string> {
    try {
      const { planes } = await this.#assemble()
      this.#url = await this.#listener.listen(this.#options.host, this.#options.port)
      await this.#discovery.register({ kind: 'server', record: this.#record() })
      planes.announce()
    } catch (error) {
      await this.destroy()
      throw error
    }
    const url = this.#url
    if (this.#state === 'idle') this.#state = 'started'
    this.#logger.info({ url, policy: this.#options.policy }, 'listening')
    return url
  }

  /**
   * Opens a loopback listener on a free port on which workers can join, and nothing else can be asked, so that a fleet
   * can gather before the server listens for clients. It stays open until the server closes.
   */
  async openJoin(): Promise<string> {
    const { planes } = await this.#assemble()
    this.#joinListener = new HttpListener((_req, res) => {
      res.writeHead(404, { 'content-type': 'application/json' }).end('{"detail":"Not Found"}')
    }, this.#ports.clock)
    planes.link.attach(this.#joinListener.server)
    this.#joinUrl = await this.#joinListener.listen('127.0.0.1', 0)
    return this.#joinUrl.replace(/^http/, 'ws')
  }

  /** Resolves with the number of active workers once it reached `count`, or when the signal aborts. */
  async workersRegistered(count: number, options: { signal: AbortSignal }): Promise<number> {
    const active = new Set<string>()
    for await (const change of this.#discovery.watch(options)) {
      const entries =
        change.type === 'snapshot' ? change.entries : change.type === 'entryPut' ? [change.entry] : []
      if (change.type === 'snapshot') active.clear()
      if (change.type === 'entryRemoved' && change.kind === 'worker') active.delete(change.id)
      for (const entry of entries) {
        if (entry.kind === 'worker' && entry.record.status === 'active') active.add(entry.record.worker_id)
      }
      if (active.size >= count) break
    }
    return active.size
  }

  /** Not ready any more; takes no new connection; resolves when running requests ended or the grace is over. Idempotent. */
  drain(): Promise<void> {
    if (this.#state !== 'closed') this.#state = 'draining'
    this.#drained ??= this.#listener.drain(this.#options.shutdownGraceMs)
    return this.#drained
  }

  /** Drains, then lets go of the fleet. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= this.drain().then(() => this.#release('close'))
    return this.#closed
  }

  /** Drops everything now. Idempotent. */
  async destroy(): Promise<void> {
    this.#state = 'closed'
    this.#closed = this.#release('destroy')
    await this.#closed
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #release(how: 'close' | 'destroy'): Promise<void> {
    this.#state = 'closed'
    const assembled = await this.#assembly?.catch(() => undefined)
    if (assembled) {
      await assembled.router[how]()
      await assembled.planes.end(how)
      assembled.metrics.close()
    }
    this.#tokenTimer?.cancel()
    await this.#joinListener?.close()
    await this.#listener.close()
    await this.#discovery.close()
  }

  #assemble(): Promise<Assembly> {
    this.#assembly ??= this.#build()
    return this.#assembly
  }

  async #build(): Promise<Assembly> {
    const prompts = new Map<string, PromptModel>()
    for (const { name, folder } of this.models) prompts.set(name, await loadPromptModel(folder))
    this.#recordSettings = recordSettings(this.#options, prompts)
    const planes = await FleetPlanes.open(this.#options, {
      hub: this.#discovery,
      serverRecord: () => this.#record(),
      settingsFor: ({ model_name: model }) =>
        settingsFor(this.#options, prompts.get(model) ?? prompts.get(anyModel)),
      ports: this.#ports,
      registry: this.#registry,
    })
    const router = new Router({
      discovery: this.#discovery,
      transports: planes.transports,
      kvEvents: planes.kvEvents,
      models: this.models.map(({ name, folder, adapters }) => ({
        name,
        folder,
        prompt: prompts.get(name) as PromptModel,
        ...(adapters === undefined ? {} : { adapters: [...adapters] }),
      })),
      policy: this.#options.policy,
      overlapWeight: this.#options.overlapWeight,
      retentionHints: this.#options.retentionHints,
      prefillOverlapWeight: this.#options.prefillOverlapWeight,
      decodeOverlapWeight: this.#options.decodeOverlapWeight,
      requestRetriesMax: this.#options.requestRetriesMax,
      firstByteTimeoutMs: this.#options.firstByteTimeoutMs,
      idleTimeoutMs: this.#options.idleTimeoutMs,
      bodyBytesMax: this.#options.bodyBytesMax,
      closeTimeoutMs: this.#options.shutdownGraceMs,
      ...this.#ports,
    })
    planes.link.attach(this.#listener.server)
    await router.start()
    this.#watchTokens(planes.link)
    planes.start()
    const metrics = new ServerMetrics(router, () => planes.refused())
    const operations = new Operations({
      router,
      metrics,
      loadOf: (workerId) => planes.link.load(workerId),
      refused: () => planes.refused(),
      isAccepting: () => this.#state === 'idle' || this.#state === 'started',
    })
    this.#assembled = { router, planes, metrics, operations }
    return this.#assembled
  }

  /** A token that was taken away is to be worth nothing soon, also when nobody connects meanwhile. */
  #watchTokens(link: LinkServer): void {
    const { joinToken, joinTokenIntervalMs } = this.#options
    if (typeof joinToken !== 'function') return
    this.#tokenTimer = this.#ports.clock.setTimer(joinTokenIntervalMs, () => {
      try {
        link.setTokens(joinToken)
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error)
        this.#logger.error({ reason }, 'join tokens cannot be read; the ones known stay accepted')
      }
      this.#watchTokens(link)
    })
  }

  #record(): ServerRecord {
    const { host, port, tls } = this.#options
    return {
      server_id: this.#serverId,
      // Workers of a fleet that still gathers know the server by the listener on which they joined.
      url: this.#url ?? this.#joinUrl ?? `${tls ? 'https' : 'http'}://${host}:${port}`,
      version,
      settings: this.#recordSettings,
    }
  }

  #onRequest(req: IncomingMessage, res: ServerResponse): void {
    // The listener opens after assembly, so this is there.
    const { operations, router } = this.#assembled as Assembly
    if (operations.handle(req, res)) return
    router.handle(req, res).catch((error: unknown) => {
      this.#logger.error(
        { error: error instanceof Error ? error.message : String(error) },
        'request handler failed',
      )
      res.destroy()
    })
  }
}

interface Assembly {
  readonly router: Router
  readonly planes: FleetPlanes
  readonly metrics: ServerMetrics
  readonly operations: Operations
}

/** What a worker must share with this server: how tokens become block hashes, the tokenizer of its model, and the ways between them. */
function settingsFor(options: ResolvedServerOptions, prompt: PromptModel | undefined): FleetSettings {
  return { ...sharedSettings(options), ...(prompt ? { tokenizer_digest: prompt.tokenizerDigest } : {}) }
}

/** The same for all models at once, as the record of this server says it. */
function recordSettings(
  options: ResolvedServerOptions,
  prompts: ReadonlyMap<string, PromptModel>,
): ServerRecord['settings'] {
  const digests = [...prompts].map(([name, prompt]) => [
    name === anyModel ? 'tokenizer_digest' : `tokenizer_digest/${name}`,
    prompt.tokenizerDigest,
  ])
  return { ...sharedSettings(options), ...Object.fromEntries(digests) }
}

function sharedSettings({ requestTransport, kvEventTransport, kvBlockSize, nats }: ResolvedServerOptions) {
  return {
    block_hash: 'xxh3-64-chain',
    request_transport: requestTransport,
    kv_event_transport: kvEventTransport,
    ...(requestTransport === 'nats' ? { nats_req_max_pending: nats.maxPending } : {}),
    ...(kvBlockSize === undefined ? {} : { kv_block_size: kvBlockSize }),
  }
}
