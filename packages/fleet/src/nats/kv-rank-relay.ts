import { jetstream } from '@nats-io/jetstream'
import type { NatsConnection } from '@nats-io/transport-node'
import { Backoff } from '../link/backoff.js'
import { KvFeed } from '../link/kv-feed.js'
import { type Clock, sleep } from '../ports/clock.js'
import type { KvEventSource } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import type { NatsBroker } from './broker.js'
import { encodeKvEpoch, type KvEventShape } from './kv-epoch.js'
import { kvStreamName, kvSubject } from './names.js'
import { ensureStream, isAbsent, kvStream, managerOf } from './streams.js'

export interface KvRankRelayOptions {
  readonly workerId: string
  readonly instance: string
  readonly rank: number
  readonly source: KvEventSource
  readonly broker: NatsBroker
  readonly shape: KvEventShape
  readonly timeoutMs: number
  readonly bufferBytesMax: number
  readonly snapshotBytesMax: number
  readonly resyncIntervalMs: number
  readonly retryIntervalMs: number
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
  /** Called for all that is published, in order: undefined where the cache begins anew. */
  readonly onPublished: (payload: Uint8Array | undefined) => void
}

/** Room for headers and subject. */
const headerRoomBytes = 1024

/**
 * Publishes one rank's events, one message each, waiting for the broker to have stored it before the next. Whatever goes wrong, and
 * at every start, it begins anew: what the stream held of this rank is purged, and a marker and the cache as it is take its
 * place. So nothing is ever lost in silence and no earlier process's events outlive it.
 */
export class KvRankRelay {
  readonly #options: KvRankRelayOptions
  readonly #stop = new AbortController()
  readonly #backoff: Backoff
  readonly #running: Promise<void>
  #wake: () => void = () => {}
  #isResyncWanted = false
  #resyncedAtMs = Number.NEGATIVE_INFINITY
  #onBegun: () => void = () => {}
  /** Resolves when the cache was published for the first time. */
  readonly begun: Promise<void>

  constructor(options: KvRankRelayOptions) {
    this.#options = options
    this.begun = new Promise((resolve) => {
      this.#onBegun = resolve
    })
    const { retryIntervalMs, random } = options
    this.#backoff = new Backoff({ firstMs: retryIntervalMs / 4, maxMs: retryIntervalMs * 8, random })
    this.#running = this.#run()
  }

  /** A reader has lost the thread: publishes the cache anew. Many wishes at a time are one. */
  resync(): void {
    this.#isResyncWanted = true
    this.#wake()
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error('the relay was closed'))
    this.#wake()
    await this.#running
  }

  async #run(): Promise<void> {
    const { broker, source, rank, bufferBytesMax, clock } = this.#options
    const stopped = this.#stop.signal
    while (!stopped.aborted) {
      let feed: KvFeed | undefined
      try {
        const connection = await broker.ready(stopped)
        const payloadBytesMax = (connection.info?.max_payload ?? 1_048_576) - headerRoomBytes
        feed = new KvFeed(source, rank, {
          bufferBytesMax,
          batchBytesMax: payloadBytesMax,
          onReady: () => this.#wake(),
        })
        await this.#relay(connection, feed, payloadBytesMax)
      } catch (error) {
        if (stopped.aborted) break
        this.#warn(error)
        await sleep(clock, this.#backoff.nextDelayMs(), stopped).catch(() => {
          // Only an abort ends a sleep early, and the loop's condition sees it.
        })
      } finally {
        feed?.close()
      }
    }
  }

  /** Until it is stopped or a fresh snapshot is wanted. */
  async #relay(connection: NatsConnection, feed: KvFeed, payloadBytesMax: number): Promise<void> {
    const { clock, resyncIntervalMs } = this.#options
    const stopped = this.#stop.signal
    // A fresh feed begins with a snapshot, whatever was wished before.
    this.#isResyncWanted = false
    while (!stopped.aborted) {
      if (this.#isResyncWanted && clock.now() - this.#resyncedAtMs >= resyncIntervalMs) return
      const outgoing = feed.take()
      if (!outgoing) await this.#woken()
      else if (outgoing.type === 'batch') {
        await this.#publish(connection, outgoing.payload)
        this.#options.onPublished(outgoing.payload)
      } else {
        this.#resyncedAtMs = clock.now()
        await this.#begin(connection, outgoing.sequence, outgoing.payloads, payloadBytesMax)
        this.#backoff.reset()
        this.#onBegun()
      }
    }
  }

  async #begin(
    connection: NatsConnection,
    sequence: number,
    payloads: Iterable<Uint8Array>,
    payloadBytesMax: number,
  ): Promise<void> {
    const { workerId, rank, instance, shape, timeoutMs, onPublished } = this.#options
    const whole = await this.#collect(payloads, payloadBytesMax)
    const manager = await managerOf(connection, timeoutMs)
    await ensureStream(manager, kvStream)
    await manager.streams.purge(kvStreamName, { filter: kvSubject(workerId, rank) })
    const epoch = { instance, sequence, count: whole.length }
    // The wall clock: readers of the reference take it for the engine's.
    await this.#publish(connection, encodeKvEpoch(epoch, shape, Date.now() / 1000))
    onPublished(undefined)
    for (const payload of whole) {
      await this.#publish(connection, payload)
      onPublished(payload)
    }
  }

  /** A snapshot that cannot be published whole is not published at all: readers would take it for the cache. */
  async #collect(payloads: Iterable<Uint8Array>, payloadBytesMax: number): Promise<readonly Uint8Array[]> {
    const { workerId, rank, snapshotBytesMax, logger } = this.#options
    const whole: Uint8Array[] = []
    let sizeBytes = 0
    for (const payload of payloads) {
      sizeBytes += payload.byteLength
      const why =
        payload.byteLength > payloadBytesMax
          ? `one piece has ${payload.byteLength} bytes, the broker takes ${payloadBytesMax}; raise max_payload`
          : sizeBytes > snapshotBytesMax
            ? `it has more than ${snapshotBytesMax} bytes; raise snapshotBytesMax`
            : undefined
      if (why) {
        logger.error({ workerId, rank, why }, 'the cache cannot be published: readers see an empty one')
        return []
      }
      whole.push(payload)
      // The engine's other work gets its turn.
      if (whole.length % 64 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    return whole
  }

  async #publish(connection: NatsConnection, payload: Uint8Array): Promise<void> {
    const { workerId, rank, timeoutMs } = this.#options
    this.#stop.signal.throwIfAborted()
    const subject = kvSubject(workerId, rank)
    await jetstream(connection, { timeout: timeoutMs }).publish(subject, payload, {
      timeout: timeoutMs,
      retries: 0,
    })
  }

  async #woken(): Promise<void> {
    const { clock, resyncIntervalMs } = this.#options
    let timer: { cancel(): void } | undefined
    await new Promise<void>((resolve) => {
      this.#wake = resolve
      // A wish that came too soon after the one before.
      if (this.#isResyncWanted) timer = clock.setTimer(resyncIntervalMs, resolve)
    })
    timer?.cancel()
  }

  #warn(error: unknown): void {
    const { workerId, rank, logger } = this.#options
    const why = isAbsent(error)
      ? 'the stream is gone'
      : error instanceof Error
        ? error.message
        : String(error)
    logger.warn({ workerId, rank, why }, 'kv events could not be published: beginning anew')
  }
}
