import { isDeepStrictEqual } from 'node:util'
import type {
  Discovery,
  FleetChange,
  FleetEntry,
  KvEventTransport,
  Logger,
  ServerRecord,
  WorkerRecord,
} from '@infera/fleet'
import type { PrefixIndex } from '@infera/native'
import { type KvEventCounts, zeroEventCounts } from '../cache/kv-event-counts.js'
import type { SettingsSource } from '../live-options.js'
import type { FleetEvent, WorkerLeftReason } from '../router-events.js'
import { Backoff, type BackoffOptions } from './backoff.js'
import { FleetWorker } from './fleet-worker.js'

export interface FleetViewOptions {
  readonly discovery: Discovery
  readonly kvEvents: readonly KvEventTransport[]
  readonly index: PrefixIndex
  readonly live: SettingsSource<'cacheBlocksMax'>
  readonly backoff: BackoffOptions
  readonly logger: Logger
  /** A target left, or is a new process under an old name: what was remembered of it is void. */
  readonly onForgotten: (routeKey: string) => void
  /** Called as things happen, while this view may be half-way through a change. */
  readonly onEvent: (event: FleetEvent) => void
}

const noWorkers: readonly FleetWorker[] = []

/**
 * The fleet as this router sees it. While the registry cannot be watched the last known fleet stays in use: workers that
 * are gone show themselves by failing, and the next snapshot sets everything right.
 */
export class FleetView {
  readonly #options: FleetViewOptions
  readonly #workers = new Map<string, FleetWorker>()
  readonly #servers = new Map<string, ServerRecord>()
  readonly #counts: KvEventCounts = zeroEventCounts()
  readonly #stopping = new AbortController()
  readonly #closing = new Set<Promise<void>>()
  #byModel: Map<string, FleetWorker[]> | undefined
  #watching: Promise<void> | undefined

  constructor(options: FleetViewOptions) {
    this.#options = options
  }

  get counts(): Readonly<KvEventCounts> {
    return this.#counts
  }

  /** Every worker, whatever its status, in registration order. */
  get workers(): readonly FleetWorker[] {
    return [...this.#workers.values()]
  }

  get servers(): readonly ServerRecord[] {
    return [...this.#servers.values()]
  }

  worker(workerId: string): FleetWorker | undefined {
    return this.#workers.get(workerId)
  }

  /** Workers of a model, whatever their status, in registration order. */
  workersOf(model: string): readonly FleetWorker[] {
    if (!this.#byModel) {
      this.#byModel = new Map()
      for (const worker of this.#workers.values()) {
        const others = this.#byModel.get(worker.record.model_name)
        if (others) others.push(worker)
        else this.#byModel.set(worker.record.model_name, [worker])
      }
    }
    return this.#byModel.get(model) ?? noWorkers
  }

  /** Asks for the views of the worker with that target anew. */
  refresh(routeKey: string): void {
    for (const worker of this.#workers.values()) {
      if (worker.targets.some(({ target }) => target.routeKey === routeKey)) worker.refresh()
    }
  }

  /** Starts watching; resolves with the first snapshot, or when the view is closed. */
  start(): Promise<void> {
    return new Promise((resolve) => {
      this.#watching ??= this.#watch(resolve)
      this.#stopping.signal.addEventListener('abort', () => resolve(), { once: true })
    })
  }

  /** Stops watching and forgets everybody. */
  async close(): Promise<void> {
    this.#stopping.abort()
    await this.#watching
    for (const workerId of [...this.#workers.keys()]) this.#remove(workerId, 'closed')
    this.#servers.clear()
    await Promise.all(this.#closing)
  }

  async #watch(onFirstSnapshot: () => void): Promise<void> {
    const { signal } = this.#stopping
    const { discovery, logger } = this.#options
    const backoff = new Backoff(this.#options.backoff)
    while (!signal.aborted) {
      try {
        for await (const change of discovery.watch({ signal })) {
          if (signal.aborted) return
          backoff.reset()
          this.#apply(change)
          if (change.type === 'snapshot') onFirstSnapshot()
        }
      } catch (error) {
        if (signal.aborted) return
        logger.warn(
          { discovery: discovery.kind, error: error instanceof Error ? error.message : String(error) },
          'watching the registry failed; the last known fleet stays in use',
        )
      }
      try {
        await backoff.wait(signal)
      } catch {
        return // the wait ends early only because the view is closed
      }
    }
  }

  #apply(change: FleetChange): void {
    if (change.type === 'entryPut') this.#put(change.entry)
    else if (change.type === 'entryRemoved') {
      if (change.kind === 'worker') this.#remove(change.id, change.reason)
      else this.#servers.delete(change.id)
    } else {
      const named = new Set(change.entries.map((entry) => `${entry.kind} ${idOf(entry)}`))
      for (const workerId of [...this.#workers.keys()])
        if (!named.has(`worker ${workerId}`)) this.#remove(workerId, 'unlisted')
      for (const serverId of [...this.#servers.keys()]) {
        if (!named.has(`server ${serverId}`)) this.#servers.delete(serverId)
      }
      for (const entry of change.entries) this.#put(entry)
    }
  }

  #put(entry: FleetEntry): void {
    if (entry.kind === 'server') this.#servers.set(entry.record.server_id, entry.record)
    else this.#putWorker(entry.record)
  }

  #putWorker(record: WorkerRecord): void {
    const known = this.#workers.get(record.worker_id)
    this.#byModel = undefined
    const { onEvent } = this.#options
    const workerId = record.worker_id
    if (known?.isSameCache(record)) {
      const previous = known.record
      known.update(record)
      if (isDeepStrictEqual(previous, record)) return // a snapshot names those that did not change as well
      onEvent({ type: 'workerChanged', workerId, record, previous })
      return
    }
    if (known) {
      this.#forget(known)
      onEvent({ type: 'workerLeft', workerId, reason: 'replaced' })
    }
    // Setting a known key keeps its place, so a worker that comes back keeps its turn.
    const worker = new FleetWorker(record, {
      ...this.#options,
      counts: this.#counts,
      onCacheState: (state, previous) => onEvent({ type: 'cacheViewChanged', workerId, state, previous }),
    })
    this.#workers.set(workerId, worker)
    onEvent({ type: 'workerJoined', workerId, record, cacheState: worker.cacheState })
    this.#options.logger.info(
      {
        workerId,
        model: record.model_name,
        role: record.disagg_mode,
        cache: worker.cacheState,
      },
      known ? 'a worker came back changed' : 'a worker joined',
    )
  }

  /** @param reason `closed`: it is this view that ends, and nobody left */
  #remove(workerId: string, reason: WorkerLeftReason | 'closed'): void {
    const worker = this.#workers.get(workerId)
    if (!worker) return
    this.#workers.delete(workerId)
    this.#byModel = undefined
    this.#forget(worker)
    if (reason === 'closed') return
    this.#options.onEvent({ type: 'workerLeft', workerId, reason })
    this.#options.logger.info({ workerId, reason }, 'a worker left')
  }

  #forget(worker: FleetWorker): void {
    for (const { target } of worker.targets) this.#options.onForgotten(target.routeKey)
    const closing = worker.close().finally(() => this.#closing.delete(closing))
    this.#closing.add(closing)
  }
}

function idOf(entry: FleetEntry): string {
  return entry.kind === 'worker' ? entry.record.worker_id : entry.record.server_id
}
