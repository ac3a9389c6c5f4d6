import { setMaxListeners } from 'node:events'
import type { Etcd3 } from 'etcd3'
import { z } from 'zod'
import { EntryBoard, entryId } from '../entry-board.js'
import { DiscoveryError } from '../errors.js'
import { bound, clockOption, durationMs, loggerOption, parseOptions, part, randomOption } from '../options.js'
import type { Discovery, FleetChange, FleetEntry, FleetEntryKind, Registration } from '../ports/discovery.js'
import { checkEntry } from '../records/wire-text.js'
import { SnapshotGate } from '../snapshot-gate.js'
import { Endpoint } from './endpoints.js'
import { EntryTable } from './entry-table.js'
import { createEtcdClient, EtcdTls } from './etcd-client.js'
import { EtcdRegistration } from './etcd-registration.js'
import type { EtcdStatus } from './etcd-status.js'
import { KeyWatch } from './key-watch.js'
import { keyOf, normalPrefix, type Prefixes, serverPrefixOf } from './keys.js'
import { LeaseKeeper } from './lease-keeper.js'

const Options = z
  .strictObject({
    /** `host`, `host:port` or URLs, of one cluster; all http or all https. */
    endpoints: z.array(Endpoint).min(1).max(64),
    /** What the keys of workers begin with; a missing `/` at the end is added. */
    prefix: z.string().min(1).max(1024).default('/infera/workers/').transform(normalPrefix),
    /** The same for servers; default: `servers/` beside the workers. */
    serverPrefix: z.string().min(1).max(1024).transform(normalPrefix).optional(),
    username: z.string().min(1).optional(),
    /** Never logged. */
    password: z.string().min(1).optional(),
    /** PEM: the authority that signed etcd's certificate, unless Node trusts it; our own certificate and key. */
    tls: EtcdTls.optional(),
    /** Life of a record without keep-alive, s. */
    leaseTtlSeconds: z.int().min(1).max(86_400).default(30),
    /** Between keep-alives; default: a third of the lease. */
    heartbeatMs: durationMs().optional(),
    requestTimeoutMs: durationMs().default(10_000),
    /** How long `deregister` and `close` try to take a record away. */
    deregisterTimeoutMs: durationMs().default(10_000),
    /** A watch of which nothing was heard for so long is begun anew with a list. */
    livenessMs: durationMs().default(60_000),
    /** How often etcd is asked whether it is there. */
    pingIntervalMs: durationMs().default(5_000),
    /** How long records stay of which an etcd that has lost its data says nothing. */
    dataLossGraceMs: durationMs().default(15_000),
    /** Pauses after failures: at first, and at most. */
    backoff: z
      .strictObject({ firstMs: durationMs().default(500), maxMs: durationMs().default(30_000) })
      .prefault({}),
    /** Keys of one answer of a list. */
    pageLimit: bound().max(100_000).default(1_000),
    /** Records of one kind; further ones are not admitted. */
    entriesMax: bound().default(65_536),
    /** Bytes of one record. */
    recordBytesMax: bound().max(1_500_000).default(262_144),
    /** Changes held for one watcher; one more and it gets a snapshot in their place. */
    watchBufferMax: bound().default(1024),
    /** Told whenever the state of the watch changes. */
    onStatus: part<(status: EtcdStatus) => void>('a function').optional(),
    clock: clockOption,
    random: randomOption,
    logger: loggerOption,
  })
  .refine((options) => (options.username === undefined) === (options.password === undefined), {
    path: ['password'],
    message: 'give username and password together, or neither',
  })
  .refine(({ endpoints }) => new Set(endpoints.map((endpoint) => endpoint.split(':', 1)[0])).size === 1, {
    path: ['endpoints'],
    message: 'give all of them http, or all https',
  })
  .refine(({ endpoints, tls }) => !tls || endpoints.every((endpoint) => endpoint.startsWith('https:')), {
    path: ['endpoints'],
    message: 'tls is given, but they are http: write https:// before them',
  })
export type EtcdDiscoveryOptions = z.input<typeof Options>

/**
 * A fleet in etcd, as Infera 0.1 keeps it: a key for each worker, under a lease of its own. While etcd is away everything known
 * stays, registrations wait, and `isLive` is false.
 */
export class EtcdDiscovery implements Discovery {
  readonly kind = 'etcd'
  readonly #options: z.output<typeof Options>
  readonly #prefixes: Prefixes
  readonly #board: EntryBoard
  readonly #gate = new SnapshotGate()
  readonly #stop = new AbortController()
  readonly #keeper: LeaseKeeper
  readonly #registrations = new Map<string, EtcdRegistration>()
  /** Those that have ended, while their leases are still to go. */
  readonly #leaving = new Set<EtcdRegistration>()
  readonly #tables: EntryTable[] = []
  #client: Etcd3 | undefined
  #status: EtcdStatus = { state: 'idle', isListed: false, failureCount: 0 }
  #watching: Promise<unknown> | undefined
  #closing: Promise<void> | undefined

  /**
   * Connects to nothing before `register` or `watch`.
   * @throws InvalidFleetOptionsError
   */
  constructor(options: EtcdDiscoveryOptions) {
    this.#options = parseOptions('EtcdDiscovery', Options, options)
    const { prefix, serverPrefix, clock, requestTimeoutMs, watchBufferMax } = this.#options
    this.#prefixes = { worker: prefix, server: serverPrefix ?? serverPrefixOf(prefix) }
    this.#board = new EntryBoard(watchBufferMax)
    this.#keeper = new LeaseKeeper({ client: () => this.#connected(), clock, timeoutMs: requestTimeoutMs })
    setMaxListeners(0, this.#stop.signal)
  }

  /** How the watch of workers does; `idle` until `watch` is called. */
  get status(): EtcdStatus {
    return this.#status
  }

  get isLive(): boolean {
    return this.#status.state === 'live'
  }

  /**
   * Puts the record under a lease of its own, and tries until that has worked: an etcd that is away only makes it take longer. Keeps
   * it there from then on, through lost leases and restarts.
   * @throws DiscoveryError `INFERA_FLEET_FULL` where the record is too large, `INFERA_FLEET_CLOSED` after `close`
   * @throws InvalidRecordError, or the signal's reason
   */
  async register(entry: FleetEntry, options: { signal?: AbortSignal } = {}): Promise<Registration> {
    options.signal?.throwIfAborted()
    const checked = checkEntry(entry)
    const { kind } = checked
    const id = entryId(checked)
    if (this.#stop.signal.aborted) {
      throw new DiscoveryError('INFERA_FLEET_CLOSED', `cannot register ${kind} '${id}': discovery is closed`)
    }
    const { leaseTtlSeconds, heartbeatMs = Math.max(1, leaseTtlSeconds / 3) * 1000 } = this.#options
    const name = `${kind} ${id}`
    const before = this.#registrations.get(name)
    const registration: EtcdRegistration = new EtcdRegistration(checked, {
      ...this.#options,
      heartbeatMs,
      key: keyOf(this.#prefixes[kind], id),
      client: () => this.#connected(),
      keeper: this.#keeper,
      onEnd: () => {
        if (this.#registrations.get(name) === registration) this.#registrations.delete(name)
        this.#leaving.add(registration)
      },
      onLeft: () => this.#leaving.delete(registration),
    })
    before?.lose(registration.settled)
    this.#registrations.set(name, registration)
    await registration.start(options.signal)
    return registration
  }

  /** The first call begins to watch. The first snapshot waits until the fleet was listed, or could not be. */
  watch(options: { signal?: AbortSignal } = {}): AsyncIterable<FleetChange> {
    this.#begin()
    return this.#gate.behind(this.#board.watch(options.signal), options.signal)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#stop.abort(new DiscoveryError('INFERA_FLEET_CLOSED', 'discovery was closed'))
    this.#gate.open()
    const all = [...this.#registrations.values(), ...this.#leaving]
    await Promise.all(all.map((each) => each.deregister()))
    await this.#watching
    await this.#keeper.close()
    for (const table of this.#tables) table.close()
    this.#client?.close()
    this.#board.close()
  }

  #connected(): Etcd3 {
    this.#client ??= createEtcdClient(this.#options)
    return this.#client
  }

  #begin(): void {
    if (this.#watching || this.#stop.signal.aborted) return
    this.#say({ ...this.#status, state: 'starting' })
    const isSettled: Record<FleetEntryKind, boolean> = { worker: false, server: false }
    const settle = (kind: FleetEntryKind) => {
      isSettled[kind] = true
      if (isSettled.worker && isSettled.server) this.#gate.open()
    }
    this.#watching = Promise.all([this.#follow('worker', settle), this.#follow('server', settle)])
  }

  #follow(kind: FleetEntryKind, onSettled: (kind: FleetEntryKind) => void): Promise<void> {
    const prefix = this.#prefixes[kind]
    const { logger, entriesMax } = this.#options
    const table = new EntryTable({ ...this.#options, kind, prefix, board: this.#board })
    this.#tables.push(table)
    const say = (status: EtcdStatus) => {
      // Servers are for comparing settings; it is the workers that have to be true.
      if (kind === 'worker') this.#say(status)
    }
    let isFailing = false
    const watch = new KeyWatch(
      { ...this.#options, client: () => this.#connected(), prefix, keysMax: 2 * entriesMax },
      {
        onList: (keys, isOtherHistory) => {
          table.list(keys, isOtherHistory)
          say({ ...this.#status, isListed: true })
          onSettled(kind)
        },
        onPut: (key) => table.put(key),
        onDelete: (key) => table.delete(key),
        onLive: () => {
          if (isFailing) logger.info({ prefix }, 'etcd is watched again')
          isFailing = false
          say({ state: 'live', isListed: true, failureCount: 0 })
        },
        onFailure: (reason) => {
          if (!isFailing)
            logger.warn({ prefix, reason }, 'etcd cannot be watched: what was known stays; trying on')
          isFailing = true
          const { isListed, failureCount } = this.#status
          say({ state: 'failing', isListed, failureCount: failureCount + 1, reason })
          onSettled(kind)
        },
      },
    )
    return watch.run(this.#stop.signal)
  }

  #say(status: EtcdStatus): void {
    this.#status = status
    try {
      this.#options.onStatus?.(status)
    } catch (error) {
      this.#options.logger.error({ reason: String(error) }, 'a listener to the status has thrown')
    }
  }
}
