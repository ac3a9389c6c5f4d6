import { z } from 'zod'
import { LostWorkers } from '../lost-workers.js'
import { bound, durationMs, parseOptions } from '../options.js'
import type { KvEventMessage, KvEventTransport, KvViewMessage } from '../ports/kv-events.js'
import { expandTargets } from '../records/targets.js'
import type { WorkerRecord } from '../records/worker-record.js'
import { brokerOptions, NatsBroker } from './broker.js'
import { NatsKvSubscription } from './kv-subscription.js'

const Options = z.strictObject({
  ...brokerOptions,
  name: z.string().default('infera-kv'),
  /** Most bytes of batches held for a reader that is behind; beyond, it gets a fresh snapshot, or the stream waits for it. */
  bufferBytesMax: bound().default(8 * 1024 * 1024),
  /** Largest cache of one rank that is taken. */
  snapshotBytesMax: bound().default(64 * 1024 * 1024),
  /** For whatever is asked of JetStream and of relays. */
  jetStreamTimeoutMs: durationMs().default(2_000),
  /** The broker says so often that it has nothing to say. */
  heartbeatIntervalMs: durationMs().default(5_000),
  /** Relays of ours are asked after this often. */
  probeIntervalMs: durationMs().default(5_000),
  /** How long a relay of ours may be absent, while the broker is there, before its worker counts as lost. */
  lostAfterMs: durationMs().default(15_000),
  /** First pause after a failure; later ones are up to 8 times as long. */
  retryIntervalMs: durationMs().default(1_000),
  /** A worker whose relay was lost is not served for so long, unless its record shows another instance. */
  lostForMs: durationMs().default(30_000),
})
export type NatsKvEventsOptions = z.input<typeof Options>

/**
 * KV events from the stream `INFERA_KV_EVENTS`, with one consumer for each worker that is subscribed to. Relays of Infera 0.1 are
 * read from the oldest event that the stream still has; those of ours bring snapshots, numbers, and word of their end.
 */
export class NatsKvEvents implements KvEventTransport {
  readonly kind = 'nats'
  readonly #options: z.output<typeof Options>
  readonly #broker: NatsBroker
  readonly #open = new Set<NatsKvSubscription>()
  readonly #lost: LostWorkers
  #closing: Promise<void> | undefined

  /**
   * Starts to connect.
   * @throws InvalidFleetOptionsError
   */
  constructor(options: NatsKvEventsOptions = {}) {
    this.#options = parseOptions('NatsKvEvents', Options, options)
    this.#lost = new LostWorkers(this.#options)
    const { clock, random, logger } = this.#options
    const { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs } = this.#options
    const connection = { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs }
    this.#broker = new NatsBroker({ ...connection, clock, random, logger })
  }

  /** Records do not say how events travel: every worker is, unless its `ext.kv_events` names another way, or it was lost. */
  serves(worker: WorkerRecord): boolean {
    if (this.#closing) return false
    const way = worker.ext?.kv_events
    if (typeof way === 'string' && way !== 'nats') return false
    return !this.#lost.has(worker)
  }

  /** @throws TransportError `INFERA_FLEET_WORKER_FAILED` when iterated, for a cache beyond `snapshotBytesMax` */
  subscribe(
    worker: WorkerRecord,
    options: { signal?: AbortSignal } = {},
  ): AsyncIterable<KvEventMessage | KvViewMessage> {
    const { clock, random, logger } = this.#options
    const { bufferBytesMax, snapshotBytesMax, probeIntervalMs, retryIntervalMs, lostAfterMs } = this.#options
    const subscription: NatsKvSubscription = new NatsKvSubscription({
      ...{
        clock,
        random,
        logger,
        bufferBytesMax,
        snapshotBytesMax,
        probeIntervalMs,
        retryIntervalMs,
        lostAfterMs,
      },
      workerId: worker.worker_id,
      ranks: expandTargets(worker).map(({ rank }) => rank ?? 0),
      broker: this.#broker,
      timeoutMs: this.#options.jetStreamTimeoutMs,
      heartbeatMs: this.#options.heartbeatIntervalMs,
      signal: options.signal,
      onEnd: (isLost) => {
        // Ended in its own construction, it was never in there.
        queueMicrotask(() => this.#open.delete(subscription))
        if (isLost) this.#lose(worker)
      },
    })
    this.#open.add(subscription)
    if (!this.serves(worker)) subscription.close()
    return subscription
  }

  /** Ends every subscription. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    for (const subscription of [...this.#open]) subscription.close()
    await this.#broker.close()
  }

  #lose(worker: WorkerRecord): void {
    this.#options.logger.warn({ workerId: worker.worker_id }, 'the relay of this worker is gone')
    this.#lost.add(worker)
  }
}
