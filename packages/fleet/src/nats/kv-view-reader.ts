import { Kvm } from '@nats-io/kv'
import type { NatsConnection } from '@nats-io/transport-node'
import type { Logger } from '../ports/logger.js'
import { decodeKvView } from './kv-view-value.js'
import { kvBucketKey, kvBucketName } from './names.js'

export interface KvViewReaderOptions {
  readonly workerId: string
  readonly ranks: readonly number[]
  readonly hashesMax: number
  readonly logger: Logger
  /** @param hashes undefined: the view was taken away */
  readonly onView: (rank: number, hashes: BigUint64Array | undefined) => void
}

/** Reads what the relay of a worker keeps in the bucket of views: as it is, and as it changes, until it is stopped. */
export class KvViewReader {
  readonly #options: KvViewReaderOptions
  #isStopped = false
  #stop = () => {}

  constructor(connection: NatsConnection, options: KvViewReaderOptions) {
    this.#options = options
    this.#read(connection).catch((error: unknown) => {
      // A fleet without such a bucket has no relay that writes one.
      const reason = error instanceof Error ? error.message : String(error)
      options.logger.debug({ workerId: options.workerId, reason }, 'the bucket of views is not read')
    })
  }

  stop(): void {
    this.#isStopped = true
    this.#stop()
  }

  async #read(connection: NatsConnection): Promise<void> {
    const { workerId, ranks, hashesMax, logger, onView } = this.#options
    const bucket = await new Kvm(connection).open(kvBucketName)
    const rankOf = new Map(ranks.map((rank) => [kvBucketKey(workerId, rank), rank]))
    const entries = await bucket.watch({ key: [...rankOf.keys()] })
    this.#stop = () => entries.stop()
    if (this.#isStopped) entries.stop()
    for await (const { key, operation, value } of entries) {
      const rank = rankOf.get(key)
      if (this.#isStopped || rank === undefined) continue
      if (operation !== 'PUT') {
        onView(rank, undefined)
        continue
      }
      const hashes = decodeKvView(value, hashesMax)
      if (!hashes) logger.warn({ workerId, rank }, 'a view in the bucket cannot be read')
      // An empty one is written by relays that have understood nothing.
      else if (hashes.length > 0) onView(rank, hashes)
    }
  }
}
