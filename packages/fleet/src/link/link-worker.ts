import { EventEmitter } from 'node:events'
import { z } from 'zod'
import { InvalidFleetOptionsError, TransportError } from '../errors.js'
import { bound, clockOption, durationMs, loggerOption, parseOptions, part, randomOption } from '../options.js'
import { sleep } from '../ports/clock.js'
import type { Discovery } from '../ports/discovery.js'
import type { KvEventSource, LoadReport } from '../ports/kv-events.js'
import type { WorkerRequestHandler } from '../ports/request-transport.js'
import { parseWorkerRecord, type WorkerRecord } from '../records/worker-record.js'
import type { FleetSettings } from '../settings.js'
import { DiscoveryTargets } from './discovery-targets.js'
import { DnsTargets, type HostResolver, systemResolver } from './dns-targets.js'
import { FixedTargets, hostNameOf, type TargetSource } from './join-targets.js'
import { joinUrl } from './join-url.js'
import { LinkLimits } from './limits.js'
import type { LinkDialer } from './link-channel.js'
import type { LinkWelcome, MembershipEvent } from './membership.js'
import { Roster } from './roster.js'
import { LinkTls } from './tls.js'
import { workerTokenOption } from './tokens.js'
import { webSocketDialer } from './web-socket-channel.js'

const isDiscovery = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && 'watch' in value && typeof value.watch === 'function'

const Options = z.strictObject({
  /**
   * Servers to join, as in `ws://server:8000`; http URLs will do; the path defaults to `LINK_PATH`. A host name with several
   * addresses stands for a server at each. Or a discovery, whose servers are joined as they come and go.
   */
  join: z.union(
    [
      z.string(),
      z.array(z.string()).min(1, 'must name at least one server'),
      z.custom<Discovery>(isDiscovery),
    ],
    {
      error: 'must be a url, a list of urls, or a Discovery',
    },
  ),
  /** Servers at once. More urls are an error; what names or a discovery say beyond it is left out, with a warning. */
  serversMax: bound().default(64),
  /** What gives the addresses of a host name; the machine's own way unless told otherwise. With `dial`: none, unless given. */
  resolve: part<HostResolver>('a function').optional(),
  /** Between two resolutions of a host name. */
  resolveIntervalMs: durationMs().default(30_000),
  record: part<z.input<typeof WorkerRecord>>('a worker record'),
  /** What this worker knows of settings that it must share with its servers. */
  settings: part<FleetSettings>('an object of settings').default(() => ({})),
  handler: part<WorkerRequestHandler>('a function'),
  kvEvents: part<KvEventSource>('a KvEventSource').optional(),
  load: part<() => LoadReport>('a function').optional(),
  loadIntervalMs: durationMs().default(1_000),
  /**
   * Bearer token for servers that want one; or a function that is asked for it before every attempt, so that it may change.
   * A server that refuses a token is final, unless a function may give another one.
   */
  token: workerTokenOption,
  /** For `wss` servers whose certificate Node does not trust by itself, or that want one of their workers. */
  tls: LinkTls.optional(),
  /** Told to servers in the hello, for their logs. */
  version: z.string().max(64).default(''),
  /** From the start of a connection attempt until the WebSocket is open. */
  connectTimeoutMs: durationMs().default(10_000),
  /** How long `drain` waits for running requests. */
  drainTimeoutMs: durationMs().default(30_000),
  /** Whether a refusal is tried again, at the longest pause; by default it is final for that server. */
  retriesRefusal: z.boolean().default(false),
  /** Pauses between attempts: from half of `firstMs`, doubling, never more than `maxMs`. */
  backoff: z
    .strictObject({ firstMs: durationMs().default(250), maxMs: durationMs().default(10_000) })
    .prefault({}),
  limits: LinkLimits.prefault({}),
  /** Opens connections; WebSockets unless told otherwise. */
  dial: part<LinkDialer>('a function').optional(),
  clock: clockOption,
  random: randomOption,
  logger: loggerOption,
})
export type LinkWorkerOptions = z.input<typeof Options>

/** What happens between a worker and one of its servers. */
export type LinkWorkerEvent = MembershipEvent & { readonly atMs: number }

/**
 * The worker's end of its links: joins every server named, stays joined through their restarts, and answers what they ask.
 * Emits `state` for whoever wants to watch.
 */
export class LinkWorker extends EventEmitter<{ state: [LinkWorkerEvent] }> {
  /**
   * Resolves with each server's welcome, in the order of `join`, once all of them let us in; rejects with LinkRefusedError
   * when one refuses for good, with TransportError `INFERA_FLEET_CLOSED` when closed before. Where host names or a discovery
   * say who the servers are, these are the ones known when every name was resolved first, or the first server announced
   * itself; one that vanishes before it let us in is not waited for, and those that come later are not either.
   */
  readonly joined: Promise<readonly LinkWelcome[]>
  readonly #options: z.output<typeof Options>
  readonly #record: WorkerRecord
  readonly #roster: Roster
  #state: 'idle' | 'open' | 'draining' | 'closed' = 'idle'
  #runningRequests = 0
  #idleWaiters: (() => void)[] = []
  #drained: Promise<void> | undefined
  #closing: Promise<void> | undefined

  /**
   * @throws InvalidFleetOptionsError
   * @throws InvalidRecordError
   */
  constructor(options: LinkWorkerOptions) {
    super()
    this.#options = parseOptions('LinkWorker', Options, options)
    this.#record = parseWorkerRecord(this.#options.record)
    const {
      clock,
      tls,
      dial = webSocketDialer(tls),
      serversMax,
      logger,
      kvEvents,
      load,
      token,
    } = this.#options
    this.#roster = new Roster({
      sources: targetSources(this.#options),
      serversMax,
      membership: {
        ...this.#options,
        ...{ dial, kvEvents, load, token },
        record: () => (this.#state === 'draining' ? { ...this.#record, status: 'draining' } : this.#record),
        onRequest: (change) => this.#countRequest(change),
      },
      onEvent: (event) => this.emit('state', { ...event, atMs: clock.now() }),
      logger,
    })
    this.joined = this.#roster.joined
    // Who does not look at `joined` learns of a refusal from the event and the log.
    this.joined.catch(() => {})
  }

  get record(): WorkerRecord {
    return this.#record
  }

  get state(): 'idle' | 'open' | 'draining' | 'closed' {
    return this.#state
  }

  /** Requests that arrive, or that a handler is at work on. */
  get runningRequests(): number {
    return this.#runningRequests
  }

  /** Begins to join. Idempotent. */
  start(): void {
    if (this.#state !== 'idle') return
    this.#state = 'open'
    this.#roster.start()
  }

  /**
   * Asks every server for no new work, then waits until running requests have ended, at most `drainTimeoutMs`. Stays joined,
   * but joins no servers that come up meanwhile. Idempotent.
   */
  drain(): Promise<void> {
    this.#drained ??= this.#drain()
    return this.#drained
  }

  /** Drains and leaves. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Leaves now; running handlers are aborted. Idempotent. */
  destroy(): void {
    this.#state = 'closed'
    this.#roster.destroy(this.#closedError())
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #drain(): Promise<void> {
    if (this.#state !== 'open') return
    this.#state = 'draining'
    const { clock, drainTimeoutMs, logger } = this.#options
    const finished = new AbortController()
    const idle = this.#roster
      .drain()
      .then(() => this.#whenIdle())
      .then(() => finished.abort())
    const timeout = sleep(clock, drainTimeoutMs, finished.signal).then(
      () => logger.warn({ runningRequests: this.#runningRequests, drainTimeoutMs }, 'drain timed out'),
      () => {
        // Aborted, because everything ended in time.
      },
    )
    await Promise.race([idle, timeout])
  }

  async #close(): Promise<void> {
    await this.drain()
    this.#state = 'closed'
    await this.#roster.close(this.#closedError())
  }

  #closedError(): TransportError {
    const { worker_id } = this.#record
    return new TransportError(
      'INFERA_FLEET_CLOSED',
      worker_id,
      `worker '${worker_id}' was closed before it joined`,
    )
  }

  #countRequest(change: 1 | -1): void {
    this.#runningRequests += change
    if (this.#runningRequests === 0) for (const resolve of this.#idleWaiters.splice(0)) resolve()
  }

  async #whenIdle(): Promise<void> {
    if (this.#runningRequests === 0) return
    await new Promise<void>((resolve) => {
      this.#idleWaiters.push(resolve)
    })
  }
}

/** @throws InvalidFleetOptionsError naming what `join` must be */
function targetSources(options: z.output<typeof Options>): readonly TargetSource[] {
  const { join, serversMax, tls, dial, resolveIntervalMs, connectTimeoutMs } = options
  // A dialer of one's own knows what its names mean.
  const { resolve = dial ? undefined : systemResolver } = options
  if (typeof join === 'object' && !Array.isArray(join)) return [new DiscoveryTargets(join, options)]
  const urls = [...new Set([join].flat().map(joinUrl))]
  if (urls.length > serversMax) {
    throw new InvalidFleetOptionsError(
      `join names ${urls.length} servers and serversMax is ${serversMax}: raise serversMax`,
    )
  }
  if (tls && !urls.some((url) => url.startsWith('wss:'))) {
    throw new InvalidFleetOptionsError(
      "option 'tls' is for servers with TLS, and join names none: write wss:// or leave tls out",
    )
  }
  return urls.map((url) => {
    const hostName = hostNameOf(url)
    if (!resolve || hostName === undefined) return new FixedTargets([{ url }])
    const timing = { intervalMs: resolveIntervalMs, timeoutMs: connectTimeoutMs }
    return new DnsTargets(url, hostName, { ...options, ...timing, resolve })
  })
}
