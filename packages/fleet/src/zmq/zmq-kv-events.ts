import { z } from 'zod'
import { LostWorkers } from '../lost-workers.js'
import { bound, clockOption, durationMs, loggerOption, parseOptions, part, randomOption } from '../options.js'
import type { KvEventMessage, KvEventTransport } from '../ports/kv-events.js'
import { expandTargets } from '../records/targets.js'
import type { WorkerRecord } from '../records/worker-record.js'
import { newCounts, type ZmqCounts } from './counts.js'
import { parsePeerEndpoint } from './endpoints.js'
import type { WorkerEndpoints } from './rank-reader.js'
import { socketOptions, ZmqSockets } from './sockets.js'
import { ZmqKvSubscription } from './zmq-kv-subscription.js'

const Options = z.strictObject({
  ...socketOptions,
  /** Prefix of the topics that are subscribed to; '' for all. */
  topic: z.string().max(256).default('kv-events'),
  /** Where an engine answers replays, as `tcp://<host>:<port of rank 0>`; undefined: `ext.kv_replay_endpoint`, if there is one. */
  replayEndpointOf: part<(worker: WorkerRecord) => string | undefined>('a function').optional(),
  /** Messages that may wait in one rank's socket; one more is dropped, and found missing. */
  receiveHighWaterMark: bound().max(1_000_000).default(10_000),
  /** Most bytes of live batches held for a reader that is behind; beyond, it gets a fresh snapshot or a replay. */
  bufferBytesMax: bound().default(8 * 1024 * 1024),
  /** Largest cache of one rank that is taken, and largest replay. */
  snapshotBytesMax: bound().default(64 * 1024 * 1024),
  /** Longest silence of whoever answers replays and snapshots. */
  replyTimeoutMs: durationMs().default(2_000),
  /** A rank that is silent for so long is asked whether it has published anything; needs a replay endpoint. */
  checkIntervalMs: durationMs().default(15_000),
  /** First pause after an answer that did not help; later ones are up to 32 times as long. */
  retryMs: durationMs().default(100),
  /** A rank that is not connected is dialled anew after each such time, whatever became of the connection. */
  redialMs: durationMs().default(10_000),
  /** How long no rank of a worker may be connected before the worker counts as lost. */
  lostAfterMs: durationMs().default(15_000),
  /** A lost worker is not served for so long, unless its record shows another instance. */
  lostForMs: durationMs().default(5_000),
  clock: clockOption,
  random: randomOption,
  logger: loggerOption,
})
export type ZmqKvEventsOptions = z.input<typeof Options>

/**
 * KV events straight from the engines' PUB sockets, one SUB socket for each rank. Gaps are found by number and filled from the
 * engine's replay socket where there is one. Workers of ours also give snapshots.
 */
export class ZmqKvEvents implements KvEventTransport {
  readonly kind = 'zmq'
  readonly #options: z.output<typeof Options>
  readonly #sockets: ZmqSockets
  readonly #counts = newCounts()
  readonly #open = new Set<ZmqKvSubscription>()
  readonly #lost: LostWorkers
  #isClosed = false

  /** @throws InvalidFleetOptionsError */
  constructor(options: ZmqKvEventsOptions = {}) {
    this.#options = parseOptions('ZmqKvEvents', Options, options)
    this.#lost = new LostWorkers(this.#options)
    this.#sockets = new ZmqSockets(this.#options)
  }

  /** Since the start; a copy. */
  get counts(): Readonly<ZmqCounts> {
    return { ...this.#counts }
  }

  /** Sockets open now. */
  get openSockets(): number {
    return this.#sockets.openCount
  }

  /**
   * Whether the record's `kv_events_endpoint` is a `tcp://<host>:<port>` that can be connected to, with room for a port for each
   * rank; unless its `ext.kv_events` names another way, or the worker was lost.
   */
  serves(worker: WorkerRecord): boolean {
    if (this.#isClosed || !this.#endpointsOf(worker)) return false
    const way = worker.ext?.kv_events
    if (typeof way === 'string' && way !== this.kind) return false
    return !this.#lost.has(worker)
  }

  /**
   * @throws TransportError `INFERA_FLEET_WORKER_FAILED` when iterated, for a cache beyond `snapshotBytesMax` and for sockets
   * beyond `socketsMax`
   */
  subscribe(worker: WorkerRecord, options: { signal?: AbortSignal } = {}): AsyncIterable<KvEventMessage> {
    const endpoints = this.serves(worker) ? this.#endpointsOf(worker) : undefined
    const subscription: ZmqKvSubscription = new ZmqKvSubscription({
      ...this.#options,
      workerId: worker.worker_id,
      rankCount: endpoints ? rankCountOf(worker) : 0,
      endpoints: endpoints ?? nowhere,
      sockets: this.#sockets,
      counts: this.#counts,
      signal: options.signal,
      onEnd: (isLost) => {
        // Ended in its own construction, it was never in there.
        queueMicrotask(() => this.#open.delete(subscription))
        if (isLost) this.#lose(worker)
      },
    })
    this.#open.add(subscription)
    if (!endpoints) subscription.close()
    return subscription
  }

  /** Ends every subscription. Idempotent. */
  close(): Promise<void> {
    this.#isClosed = true
    for (const subscription of [...this.#open]) subscription.close()
    return Promise.resolve()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #endpointsOf(worker: WorkerRecord): WorkerEndpoints | undefined {
    const rankCount = rankCountOf(worker)
    const events = parsePeerEndpoint(worker.kv_events_endpoint, rankCount)
    if (!events) return undefined
    const replay = this.#options.replayEndpointOf?.(worker) ?? worker.ext?.kv_replay_endpoint
    return {
      events,
      replay: parsePeerEndpoint(replay, rankCount),
      snapshot: parsePeerEndpoint(worker.ext?.kv_snapshot_endpoint, rankCount),
    }
  }

  #lose(worker: WorkerRecord): void {
    this.#options.logger.warn(
      { workerId: worker.worker_id },
      'the kv events of this worker cannot be reached any more',
    )
    this.#lost.add(worker)
  }
}

/** Every target of a record has a port of its own. One that is no rank of a multiplexed worker is rank 0, on the base port. */
function rankCountOf(worker: WorkerRecord): number {
  return expandTargets(worker).length
}

const nowhere: WorkerEndpoints = {
  events: { host: 'localhost', port: 0 },
  replay: undefined,
  snapshot: undefined,
}
