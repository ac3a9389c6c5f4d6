import {
  type Clock,
  LinkWorker,
  type LinkWorkerOptions,
  type Logger,
  type Random,
  sleep,
  type WorkerRecord,
} from '@infera/fleet'
import type { PromptModel } from '@infera/router/prompt'
import { SimEngine } from '../engine/sim-engine.js'
import { EngineClock } from '../faults/engine-clock.js'
import type { FaultTarget, ProcessEnd } from '../faults/fault-target.js'
import type { FaultyDiscovery } from '../faults/faulty-discovery.js'
import { FaultyHandler } from '../faults/faulty-handler.js'
import type { FaultyKvEvents } from '../faults/faulty-kv-events.js'
import { FaultyKvSource } from '../faults/faulty-kv-source.js'
import type { FaultyTransport } from '../faults/faulty-transport.js'
import type { SimEngineOptions } from '../options.js'
import { simWorkerRecord, simWorkerSettings } from '../worker/sim-worker-record.js'
import type { NodeLine } from './node-line.js'
import type { PortFleet, PortMember } from './port-fleet.js'
import { RequestWatch } from './request-watch.js'

/** What all nodes of a fleet have in common. */
export interface NodeSurroundings {
  readonly clock: Clock
  readonly wallClock: () => number
  readonly random: Random
  readonly logger: Logger
  readonly prompt: PromptModel
  readonly engine: SimEngineOptions
  readonly limits: LinkWorkerOptions['limits']
  readonly drainTimeoutMs: number
  readonly requests: FaultyTransport
  readonly kvEvents: FaultyKvEvents
  readonly discovery: FaultyDiscovery
  /** Where workers go that have no line. */
  readonly ports: PortFleet
}

/** One process: an engine and how it is reached. */
interface Process {
  readonly record: WorkerRecord
  readonly engine: SimEngine
  readonly engineClock: EngineClock
  readonly watch: RequestWatch
  readonly handler: FaultyHandler
  readonly kvSource: FaultyKvSource
  /** Exactly one of them is there. */
  readonly link: LinkWorker | undefined
  readonly port: PortMember | undefined
  isDraining: boolean
  isGone: boolean
}

/** A place of the fleet, with the worker process that is there now. */
export class SimNode implements FaultTarget {
  readonly place: number
  readonly line: NodeLine | undefined
  readonly #around: NodeSurroundings
  #process: Process
  /** Processes that are gone, with what they may have left behind. */
  readonly #past: Process[] = []
  #instances = 0
  #ids = 0
  #workerId = ''

  constructor(place: number, around: NodeSurroundings, line: NodeLine | undefined) {
    this.place = place
    this.line = line
    this.#around = around
    this.#process = this.#begin(false)
  }

  get workerId(): string {
    return this.#workerId
  }

  get modelName(): string {
    return this.#process.record.model_name
  }

  get record(): WorkerRecord {
    return this.#process.record
  }

  get engine(): SimEngine {
    return this.#process.engine
  }

  get watch(): RequestWatch {
    return this.#process.watch
  }

  get isGone(): boolean {
    return this.#process.isGone
  }

  get isDraining(): boolean {
    return this.#process.isDraining
  }

  /** Requests that the worker's end of its links is at work on. */
  get runningAtLink(): number {
    return this.#process.link?.runningRequests ?? 0
  }

  /** Engines of processes that are gone. At most one for each fault that ended a process. */
  get pastProcesses(): readonly Pick<Process, 'record' | 'engine' | 'watch'>[] {
    return this.#past
  }

  get clock(): Clock {
    return this.#around.clock
  }

  get engineClock(): EngineClock {
    return this.#process.engineClock
  }

  get handler(): FaultyHandler {
    return this.#process.handler
  }

  get kvSource(): FaultyKvSource {
    return this.#process.kvSource
  }

  get requests(): FaultyTransport {
    return this.#around.requests
  }

  get kvEvents(): FaultyKvEvents {
    return this.#around.kvEvents
  }

  get discovery(): FaultyDiscovery {
    return this.#around.discovery
  }

  kill(end: ProcessEnd): void {
    const process = this.#process
    if (process.isGone) return
    process.isGone = true
    // What a process sends while it dies does not arrive where its host died with it.
    if (end === 'silent') this.line?.abandon()
    process.link?.destroy()
    process.port?.leave(end === 'silent' ? 'silent' : 'leaseLost')
    process.engineClock.setRate(1)
    process.engine.destroy()
  }

  start(isSameId: boolean): void {
    // What drains for longer than it was given is killed, as supervisors do.
    this.kill('reset')
    this.#past.push(this.#process)
    this.#process = this.#begin(isSameId)
  }

  drain(lingerMs: number): void {
    const process = this.#process
    process.isDraining = true
    process.watch.drain()
    void this.#leave(process, lingerMs)
  }

  resubscribe(): void {
    if (this.line) this.line.cut()
    else this.kvEvents.break(this.#workerId, false)
  }

  /** Leaves and ends the engine. */
  async close(): Promise<void> {
    if (!this.#process.isGone) await this.#leave(this.#process, 0)
  }

  async #leave(process: Process, lingerMs: number): Promise<void> {
    const member = process.link ?? process.port
    await member?.drain()
    if (lingerMs > 0) await sleep(this.clock, lingerMs)
    await member?.close()
    process.isGone = true
    process.engine.destroy()
  }

  #begin(isSameId: boolean): Process {
    const { clock, wallClock, random, logger, prompt, limits, drainTimeoutMs, ports } = this.#around
    if (!isSameId || this.#ids === 0) {
      this.#workerId = this.#ids === 0 ? `w${this.place}` : `w${this.place}-${this.#ids}`
      this.#ids += 1
    }
    const engineClock = new EngineClock(clock)
    const engine = new SimEngine({
      ...this.#around.engine,
      instanceId: `${this.place}-${this.#instances++}`,
      timeScale: 1,
      prompt,
      clock: engineClock,
      wallClock,
      logger,
    })
    const watch = new RequestWatch(engine.handler, clock)
    const handler = new FaultyHandler(watch.handler)
    const kvSource = new FaultyKvSource(engine.kvEvents)
    const record = simWorkerRecord(engine, { workerId: this.#workerId })
    const parts = { record, engine, engineClock, watch, handler, kvSource, isDraining: false, isGone: false }
    if (!this.line) {
      const port = ports.join({ record, handler: handler.handler, kvSource })
      return { ...parts, link: undefined, port }
    }
    const link = new LinkWorker({
      join: 'ws://server',
      record,
      settings: simWorkerSettings(engine),
      handler: handler.handler,
      kvEvents: kvSource,
      load: () => engine.load(),
      drainTimeoutMs,
      backoff: { firstMs: 50, maxMs: 400 },
      connectTimeoutMs: 2_000,
      limits,
      dial: this.line.dialerOf(this.#workerId),
      clock,
      random,
      logger,
    })
    link.start()
    return { ...parts, link, port: undefined }
  }
}
