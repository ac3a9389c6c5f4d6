import {
  EmbeddedDiscovery,
  LinkServer,
  type Logger,
  seededRandom,
  silentLogger,
  VirtualClock,
} from '@infera/fleet'
import { type PickMessage, type RequestMessage, Router } from '@infera/router'
import { InjectedFaultError } from '../errors.js'
import type { FaultPort } from '../faults/fault.js'
import { FaultyDiscovery } from '../faults/faulty-discovery.js'
import { FaultyKvEvents } from '../faults/faulty-kv-events.js'
import { FaultyTransport } from '../faults/faulty-transport.js'
import { parseOptions } from '../options.js'
import { BookingAudit } from './booking-audit.js'
import { EventTrace } from './event-trace.js'
import { NodeLine } from './node-line.js'
import { PortFleet } from './port-fleet.js'
import { SimFleetOptions, smallEngine, tightLimits, wallClockStartMs } from './sim-fleet-options.js'
import { type NodeSurroundings, SimNode } from './sim-node.js'

/** After which the entry of a worker that fell silent is dropped where there is no line to tell, ms. */
const leaseMs = 1_500
/** How long the fleet may take to come up, ms. */
const startTimeoutMs = 30_000

/**
 * A whole fleet in one process: simulated engines, a real router, and what lies between them, under one virtual clock, without a
 * socket or a timer of the process. The same options give the same run. Time moves only when `clock` is moved.
 */
export class SimFleet {
  readonly clock = new VirtualClock()
  readonly router: Router
  readonly nodes: readonly SimNode[]
  readonly trace = new EventTrace()
  readonly audit: BookingAudit
  /** Of the registry itself, before any fault. */
  readonly registry = new EmbeddedDiscovery()
  readonly model: string
  readonly requests: FaultyTransport
  readonly kvEvents: FaultyKvEvents
  readonly discovery: FaultyDiscovery
  readonly #server: LinkServer | undefined
  readonly #settings: ReturnType<typeof SimFleetOptions.parse>
  /** How often each worker left or came, as the router saw it. */
  readonly #changes = new Map<string, number>()
  #pickListeners: ((pick: PickMessage) => void)[] = []
  #requestListeners: ((request: RequestMessage) => void)[] = []

  private constructor(options: SimFleetOptions) {
    const {
      prompt,
      engine = smallEngine,
      router = {},
      limits = tightLimits,
      logger = silentLogger,
      ...own
    } = options
    const settings = parseOptions(SimFleetOptions, own)
    const { clock } = this
    const random = seededRandom(settings.seed)
    const wallClock = () => wallClockStartMs + clock.now()
    this.#settings = settings
    this.model = settings.model
    this.#server =
      settings.mode === 'link'
        ? new LinkServer({
            discovery: this.registry,
            serverRecord: { server_id: 'server', url: 'http://server', version: '0', settings: {} },
            limits,
            clock,
            random: seededRandom(settings.seed + 1),
            logger,
          })
        : undefined
    const ports = new PortFleet({
      discovery: this.registry,
      leaseMs,
      after: (ms, callback) => void clock.setTimer(ms, callback),
    })
    this.requests = new FaultyTransport(this.#server?.requests ?? ports.requests)
    this.kvEvents = new FaultyKvEvents(this.#server?.kvEvents ?? ports.kvEvents)
    this.discovery = new FaultyDiscovery(this.registry)
    this.router = new Router({
      requestRetriesMax: 64,
      ...router,
      discovery: this.discovery,
      transports: [this.requests],
      kvEvents: [this.kvEvents],
      models: [{ name: settings.model, prompt }],
      clock,
      random,
      logger: membershipLogger(logger, (workerId, what) => this.#changed(workerId, what)),
    })
    this.audit = new BookingAudit(this.router, {
      onPick: (pick) => this.#picked(pick),
      onRequest: (request) => this.#ended(request),
    })
    const around: Omit<NodeSurroundings, 'random'> = {
      clock,
      wallClock,
      logger,
      prompt,
      engine: { ...engine, model: settings.model },
      limits,
      drainTimeoutMs: settings.drainTimeoutMs,
      requests: this.requests,
      kvEvents: this.kvEvents,
      discovery: this.discovery,
      ports,
    }
    this.nodes = Array.from({ length: settings.workers }, (_, place) =>
      this.#node(place, { ...around, random: seededRandom(settings.seed + 100 + place) }),
    )
  }

  /**
   * @throws InvalidSimOptionsError naming the option and what it must be
   * @throws InjectedFaultError when the fleet does not come up, which is a fault of what it is made of
   */
  static async start(options: SimFleetOptions): Promise<SimFleet> {
    const fleet = new SimFleet(options)
    await fleet.router.start()
    const isUp = await fleet.clock.runUntil(() => fleet.isWhole, { withinMs: startTimeoutMs })
    if (!isUp) throw new InjectedFaultError(`the fleet was not up after ${startTimeoutMs} ms`)
    return fleet
  }

  get mode(): 'link' | 'ports' {
    return this.#settings.mode
  }

  /** From one end of a line to the other when nothing delays it, ms. */
  get latencyMs(): number {
    return this.#settings.latencyMs
  }

  /** Where faults can bite. */
  get faultPorts(): ReadonlySet<FaultPort> {
    const ports: FaultPort[] = ['engine', 'answer', 'requests', 'events', 'discovery']
    return new Set(this.mode === 'link' ? [...ports, 'line'] : ports)
  }

  /** Whether the router knows every worker that is there, and nobody else, and follows the cache of each. */
  get isWhole(): boolean {
    const known = this.router.workers()
    return (
      known.length === this.nodes.length &&
      this.serving().length === this.nodes.length &&
      known.every(({ cache_view }) => cache_view === 'live')
    )
  }

  /** The places whose present process the router knows, and may pick. */
  serving(): SimNode[] {
    const known = new Map(this.router.workers().map((worker) => [worker.worker_id, worker]))
    return this.nodes.filter((node) => {
      const record = known.get(node.workerId)
      return !node.isGone && record?.status === 'active' && record.ext?.instance_id === node.engine.instanceId
    })
  }

  /** Moves on whenever the router saw this worker come, go or change. */
  changesOf(workerId: string): number {
    return this.#changes.get(workerId) ?? 0
  }

  /** @returns what takes the listener away */
  onPick(listener: (pick: PickMessage) => void): () => void {
    this.#pickListeners.push(listener)
    return () => {
      this.#pickListeners = this.#pickListeners.filter((other) => other !== listener)
    }
  }

  /** Told when a request is over, as the router sees it. @returns what takes the listener away */
  onRequestEnd(listener: (request: RequestMessage) => void): () => void {
    this.#requestListeners.push(listener)
    return () => {
      this.#requestListeners = this.#requestListeners.filter((other) => other !== listener)
    }
  }

  /**
   * Drains and ends all of it.
   * @param options.withinMs most time that it may take, ms of the clock
   * @returns whether it was done in that time
   */
  async close({ withinMs = 120_000 }: { withinMs?: number } = {}): Promise<boolean> {
    let isClosed = false
    const closing = this.#closeAll().then(() => {
      isClosed = true
    })
    const isDone = await this.clock.runUntil(() => isClosed, { withinMs })
    this.audit.close()
    if (isDone) await closing
    return isDone
  }

  async #closeAll(): Promise<void> {
    await this.router.close()
    await Promise.all(this.nodes.map((node) => node.close()))
    await this.#server?.close()
    await this.registry.close()
  }

  #node(place: number, around: NodeSurroundings): SimNode {
    const { latencyMs, bytesPerMs } = this.#settings
    const line =
      this.#server && new NodeLine({ clock: this.clock, server: this.#server, latencyMs, bytesPerMs })
    return new SimNode(place, around, line)
  }

  #picked(pick: PickMessage): void {
    this.trace.add(
      this.clock.now(),
      'pick',
      pick.requestId,
      pick.attempt,
      pick.placement.routeKey,
      pick.placement.overlapBlocks,
    )
    for (const listener of this.#pickListeners) listener(pick)
  }

  #ended(request: RequestMessage): void {
    const { requestId, workerId, status, outcome } = request
    this.trace.add(this.clock.now(), 'end', requestId, workerId, status, outcome)
    for (const listener of this.#requestListeners) listener(request)
  }

  #changed(workerId: string, what: MembershipChange): void {
    this.#changes.set(workerId, this.changesOf(workerId) + 1)
    this.trace.add(this.clock.now(), what, workerId)
    if (what !== 'a worker joined') this.audit.forget(workerId)
  }
}

const membershipChanges = ['a worker joined', 'a worker came back changed', 'a worker left'] as const
type MembershipChange = (typeof membershipChanges)[number]

/**
 * Learns of members in the very turn in which the router takes them in or lets them go. Its events come a little later, when
 * further requests may have been placed already, and a second set of books needs the order.
 */
function membershipLogger(
  inner: Logger,
  onChange: (workerId: string, what: MembershipChange) => void,
): Logger {
  return {
    debug: (fields, message) => inner.debug(fields, message),
    info: (fields, message) => {
      inner.info(fields, message)
      const what = membershipChanges.find((change) => change === message)
      if (what !== undefined) onChange(String(fields.workerId), what)
    },
    warn: (fields, message) => inner.warn(fields, message),
    error: (fields, message) => inner.error(fields, message),
  }
}
