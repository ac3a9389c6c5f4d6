import { randomBytes } from 'node:crypto'
import type { Msg } from '@nats-io/transport-node'
import { z } from 'zod'
import { bound, durationMs, parseOptions, part } from '../options.js'
import type { KvEventSource } from '../ports/kv-events.js'
import { brokerOptions, NatsBroker } from './broker.js'
import { KvBucket, type KvViewCodec } from './kv-bucket.js'
import { KvRankRelay } from './kv-rank-relay.js'
import { kvStreamName, kvSubject, kvSyncSubject } from './names.js'
import { managerOf } from './streams.js'

const Options = z.strictObject({
  ...brokerOptions,
  name: z.string().default('infera-kv'),
  workerId: z.string().min(1).max(512),
  source: part<KvEventSource>('a KvEventSource'),
  /** Of this process; as `ext.instance_id` of its record. */
  instanceId: z
    .string()
    .regex(/^[\w-]{1,64}$/)
    .default(() => randomBytes(9).toString('base64url')),
  /** How the engine writes events: `array` for SGLang. */
  eventShape: z.enum(['map', 'array']).default('map'),
  /** Keeps the bucket of views; without it the bucket is left alone. */
  viewCodec: part<KvViewCodec>('a KvViewCodec').optional(),
  /** Least time between two writes of one rank's view. */
  viewWriteIntervalMs: durationMs().default(2_000),
  /** Most bytes of batches that wait for the broker; beyond, the cache is published anew in their place. */
  bufferBytesMax: bound().default(16 * 1024 * 1024),
  /** Largest cache that is published. */
  snapshotBytesMax: bound().default(64 * 1024 * 1024),
  /** Least time between two times that the cache is published anew because a reader wished it. */
  resyncIntervalMs: durationMs().default(1_000),
  /** For whatever is asked of JetStream. */
  jetStreamTimeoutMs: durationMs().default(2_000),
  /** First pause after a failure; later ones are up to 8 times as long. */
  retryIntervalMs: durationMs().default(1_000),
})
export type NatsKvRelayOptions = z.input<typeof Options>

/** The worker's side of KV events over NATS: every batch as the engine wrote it, one message each, in order. */
export class NatsKvRelay {
  readonly #options: z.output<typeof Options>
  readonly #broker: NatsBroker
  readonly #ranks: ReadonlyMap<number, KvRankRelay>
  readonly #bucket: KvBucket | undefined
  #ending: Promise<void> | undefined

  /**
   * Starts to connect and to publish. Start it before the worker is registered, so that front ends find the cache.
   * @throws InvalidFleetOptionsError
   */
  constructor(options: NatsKvRelayOptions) {
    this.#options = parseOptions('NatsKvRelay', Options, options)
    const { workerId, source, viewCodec, clock, random, logger } = this.#options
    const { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs } = this.#options
    this.#broker = new NatsBroker(
      { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs, clock, random, logger },
      {
        onConnection: (connection) => {
          connection.subscribe(kvSyncSubject(workerId), {
            callback: (_error, message) => this.#sync(message),
          })
        },
      },
    )
    const broker = this.#broker
    if (viewCodec) {
      const writeIntervalMs = this.#options.viewWriteIntervalMs
      const ranks = source.ranks
      this.#bucket = new KvBucket({
        workerId,
        ranks,
        codec: viewCodec,
        broker,
        writeIntervalMs,
        clock,
        logger,
      })
    }
    const { instanceId, eventShape, jetStreamTimeoutMs } = this.#options
    const { bufferBytesMax, snapshotBytesMax, resyncIntervalMs, retryIntervalMs } = this.#options
    this.#ranks = new Map(
      source.ranks.map((rank) => {
        const relay = new KvRankRelay({
          ...{ workerId, instance: instanceId, rank, source, broker, shape: eventShape },
          ...{ bufferBytesMax, snapshotBytesMax, resyncIntervalMs, retryIntervalMs },
          ...{ timeoutMs: jetStreamTimeoutMs, clock, random, logger },
          onPublished: (payload) => this.#bucket?.apply(rank, payload),
        })
        return [rank, relay]
      }),
    )
  }

  /** Resolves once the cache of every rank was published. */
  async ready(): Promise<void> {
    await Promise.all([...this.#ranks.values()].map(({ begun }) => begun))
  }

  /** Stops publishing. The views stay in the bucket, written a last time. Idempotent. */
  close(): Promise<void> {
    this.#ending ??= this.#end(async () => this.#bucket?.close())
    return this.#ending
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** The worker leaves for good: what the broker holds of it is taken away. In place of `close`. */
  deregister(): Promise<void> {
    this.#ending ??= this.#end(async () => {
      await this.#bucket?.deleteKeys()
      await this.#purge()
    })
    return this.#ending
  }

  /** Vanishes: nothing is said to anybody. */
  async destroy(): Promise<void> {
    await this.#broker.destroy()
    this.#ending ??= this.#end(async () => {})
    await this.#ending
  }

  async #end(lastWork: () => Promise<void>): Promise<void> {
    await Promise.all([...this.#ranks.values()].map((relay) => relay.close()))
    await lastWork()
    await this.#broker.close()
  }

  async #purge(): Promise<void> {
    const { workerId, logger, jetStreamTimeoutMs } = this.#options
    const connection = this.#broker.connection
    if (!connection) return
    try {
      const manager = await managerOf(connection, jetStreamTimeoutMs)
      for (const rank of this.#ranks.keys()) {
        await manager.streams.purge(kvStreamName, { filter: kvSubject(workerId, rank) })
      }
    } catch (error) {
      const fields = { workerId, error: error instanceof Error ? error.message : String(error) }
      logger.warn(fields, 'the events of this worker stay in the stream')
    }
  }

  #sync(message: Msg): void {
    const text = message.string()
    if (/^\d{1,4}$/.test(text)) this.#ranks.get(Number(text))?.resync()
    const { instanceId } = this.#options
    message.respond(JSON.stringify({ instance: instanceId, ranks: [...this.#ranks.keys()] }))
  }
}
