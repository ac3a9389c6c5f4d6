import {
  type AddressProber,
  CheckedDiscovery,
  type Discovery,
  type EmbeddedDiscovery,
  type FleetSettings,
  HttpTransport,
  httpAddressProber,
  type KvEventTransport,
  LinkServer,
  type LinkServerOptions,
  type RefusedWorker,
  type RequestTransport,
  type ServerRecord,
  StaticDiscovery,
  type WorkerRecord,
} from '@infera/fleet'
import type { ResolvedServerOptions } from '../options.js'
import { type BackendPorts, openRegistry } from './discovery-backend.js'
import { importBackend, natsPackages } from './import-backend.js'
import { mirrorDiscovery } from './mirror-discovery.js'

export interface FleetPlanesParts {
  /** What every worker is registered in, wherever it was found. */
  readonly hub: EmbeddedDiscovery
  readonly serverRecord: () => ServerRecord
  /** What a worker must share with this server. */
  readonly settingsFor: (record: WorkerRecord) => FleetSettings
  readonly ports: BackendPorts
  /** Takes the place of what the options name. */
  readonly registry: Discovery | undefined
}

/** A worker that cannot tell us that it is gone is asked. */
const staticHealth = { intervalMs: 5_000, timeoutMs: 2_000, failuresBeforeRemoval: 3 }

interface Closable {
  close(): Promise<void>
}

/** The ways between this server and its workers, as its options say: who is there, how requests get to them, what their caches hold. */
export class FleetPlanes {
  readonly link: LinkServer
  readonly transports: readonly RequestTransport[]
  readonly kvEvents: readonly KvEventTransport[]
  readonly #parts: FleetPlanesParts
  readonly #registry: CheckedDiscovery | undefined
  readonly #static: StaticDiscovery | undefined
  readonly #closables: readonly Closable[]
  readonly #stopping = new AbortController()
  readonly #running: Promise<unknown>[] = []

  private constructor(
    parts: FleetPlanesParts,
    link: LinkServer,
    { transports, kvEvents, closables }: Opened,
    registry: CheckedDiscovery | undefined,
    workers: StaticDiscovery | undefined,
  ) {
    this.#parts = parts
    this.link = link
    this.transports = transports
    this.kvEvents = kvEvents
    this.#registry = registry
    this.#static = workers
    this.#closables = closables
  }

  /** @throws ServerError `INFERA_SERVER_OPTIONS` naming what is missing */
  static async open(options: ResolvedServerOptions, parts: FleetPlanesParts): Promise<FleetPlanes> {
    const { hub, serverRecord, settingsFor, ports } = parts
    const token: Pick<LinkServerOptions, 'token'> =
      options.joinToken === undefined ? {} : { token: options.joinToken }
    const link = new LinkServer({ discovery: hub, serverRecord, settingsFor, ...token, ...ports })
    const { discovery, workers } = options
    const source =
      parts.registry ?? (discovery.backend === 'embedded' ? undefined : await openRegistry(discovery, ports))
    // Last, since brokers are connected to from here on, and nothing must be left running when the start fails.
    const opened = await openPlanes(options, link, ports)
    const registry = source && new CheckedDiscovery({ source, settingsFor, prober: opened.prober, ...ports })
    const named =
      workers.length === 0
        ? undefined
        : new StaticDiscovery({
            workers: workers.map(({ url, model }) => ({ url, model_name: model })),
            health: staticHealth,
            ...ports,
          })
    return new FleetPlanes(parts, link, opened, registry, named)
  }

  /** Begins to take in whoever is found. */
  start(): void {
    const { hub } = this.#parts
    const { signal } = this.#stopping
    for (const source of [this.#registry, this.#static]) {
      if (source) this.#running.push(mirrorDiscovery(source, hub, { signal }))
    }
  }

  /** Tells the registry that this server is there; a registry that is away is told later. */
  announce(): void {
    const record = this.#parts.serverRecord()
    const { logger } = this.#parts.ports
    const announced = this.#registry
      ?.register({ kind: 'server', record }, { signal: this.#stopping.signal })
      .catch((error: unknown) => {
        if (this.#stopping.signal.aborted) return
        const reason = error instanceof Error ? error.message : String(error)
        logger.warn({ reason }, 'this server is not announced: workers cannot compare their settings with it')
      })
    if (announced) this.#running.push(announced)
  }

  /** Workers that were turned away and have not come in since, whichever way they tried. */
  refused(): RefusedWorker[] {
    return [...this.link.refused(), ...(this.#registry?.refused() ?? [])]
  }

  /** Lets go of everything; `close` waits for running requests. */
  async end(how: 'close' | 'destroy'): Promise<void> {
    this.#stopping.abort(new Error('the server ends'))
    await this.link[how]()
    await Promise.all(this.#running)
    for (const each of this.#closables) await each.close()
  }
}

interface Opened {
  readonly transports: readonly RequestTransport[]
  readonly kvEvents: readonly KvEventTransport[]
  readonly closables: readonly Closable[]
  readonly prober: AddressProber
}

async function openPlanes(
  options: ResolvedServerOptions,
  link: LinkServer,
  ports: BackendPorts,
): Promise<Opened> {
  const { nats, requestTransport, kvEventTransport } = options
  const http = new HttpTransport({ logger: ports.logger, clock: ports.clock })
  const transports: RequestTransport[] = [link.requests, http]
  const kvEvents: KvEventTransport[] = [link.kvEvents]
  const closables: Closable[] = [http]
  let prober = httpAddressProber
  const isNatsUsed = requestTransport === 'nats' || kvEventTransport === 'nats'
  const fleetNats = isNatsUsed ? await importNats() : undefined
  const fleetZmq = kvEventTransport === 'zmq' ? await importZmq() : undefined
  if (fleetNats && requestTransport === 'nats') {
    const { NatsTransport } = fleetNats
    const requests = new NatsTransport({ ...nats, ...ports })
    transports.push(requests)
    closables.push(requests)
    prober = (worker, how) =>
      worker.request_transport === 'nats' ? requests.probe(worker) : httpAddressProber(worker, how)
  }
  if (fleetNats && kvEventTransport === 'nats') {
    const { NatsKvEvents } = fleetNats
    const events = new NatsKvEvents({ url: nats.url, ...ports })
    kvEvents.push(events)
    closables.push(events)
  }
  if (fleetZmq) {
    const events = new fleetZmq.ZmqKvEvents({ ...ports })
    kvEvents.push(events)
    closables.push(events)
  }
  return { transports, kvEvents, closables, prober }
}

function importNats() {
  return importBackend('a transport over nats', natsPackages, () => import('@infera/fleet/nats'))
}

function importZmq() {
  return importBackend('--kv-event-transport zmq', 'zeromq', () => import('@infera/fleet/zmq'))
}
