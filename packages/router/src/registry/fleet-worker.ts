import { expandTargets, type KvEventTransport, type Logger, type WorkerRecord } from '@infera/fleet'
import { type CacheView, NativeBoundError, type PrefixIndex, tiers } from '@infera/native'
import type { KvEventCounts } from '../cache/kv-event-counts.js'
import type { SettingsSource } from '../live-options.js'
import type { PlaceableTarget, PlaceableWorker } from '../scheduling/placer.js'
import type { BackoffOptions } from './backoff.js'
import { type CacheState, KvFollower } from './kv-follower.js'

export interface FleetWorkerOptions {
  readonly index: PrefixIndex
  readonly kvEvents: readonly KvEventTransport[]
  readonly counts: KvEventCounts
  readonly live: SettingsSource<'cacheBlocksMax'>
  readonly backoff: BackoffOptions
  readonly logger: Logger
  /** What is known of its cache is of another kind now; told until it is closed. */
  readonly onCacheState: (state: CacheState, previous: CacheState) => void
}

/** Engines that report each physical copy of a block by itself, and its removal as well. */
const copyCounting: ReadonlySet<string> = new Set(['vllm', 'atom'])

/** One worker as the router knows it: its record, its targets, and what they hold. */
export class FleetWorker implements PlaceableWorker {
  readonly targets: readonly PlaceableTarget[]
  readonly #views = new Map<number, CacheView>()
  readonly #follower: KvFollower | undefined
  #whyUnknown: 'no-block-size' | 'no-event-source' | 'no-room' = 'no-event-source'
  #record: WorkerRecord

  constructor(record: WorkerRecord, options: FleetWorkerOptions) {
    this.#record = record
    const blockSizeTokens = record.kv_block_size ?? 0
    const transport = options.kvEvents.find((source) => source.serves(record))
    if (blockSizeTokens === 0) this.#whyUnknown = 'no-block-size'
    const isFollowed = blockSizeTokens > 0 && transport !== undefined
    this.targets = expandTargets(record).map((target) => {
      if (!isFollowed) return { target, view: undefined }
      const rank = target.rank ?? 0
      const view = this.#newView(rank, blockSizeTokens, options)
      if (!view) return { target, view: undefined }
      this.#views.set(rank, view)
      // A process that is one rank of several may number its events by that rank, or as the only one it has.
      if (target.rank === null && record.dp_rank !== null) this.#views.set(record.dp_rank, view)
      return { target, view }
    })
    if (!isFollowed || this.#views.size === 0) return
    this.#follower = new KvFollower({
      ...options,
      record,
      transport,
      views: this.#views,
      onState: options.onCacheState,
    })
  }

  /** @returns undefined, with a warning, where the index has no room for one more target */
  #newView(
    rank: number,
    blockSizeTokens: number,
    { index, live, logger }: FleetWorkerOptions,
  ): CacheView | undefined {
    try {
      return index.createView({
        blockSizeTokens,
        engineHashesMax: live.settings.cacheBlocksMax,
        // Placement counts blocks on the device alone.
        tiers: [tiers.device],
        countsCopies: copyCounting.has(this.#record.engine),
        isPrefixMonotone: true,
      })
    } catch (error) {
      if (!(error instanceof NativeBoundError)) throw error
      this.#whyUnknown = 'no-room'
      const { worker_id: workerId } = this.#record
      logger.warn(
        { workerId, rank, reason: error.message },
        'the cache index has no room for this worker: it is routed to without knowledge of its cache',
      )
      return undefined
    }
  }

  get record(): WorkerRecord {
    return this.#record
  }

  get cacheState(): CacheState {
    return this.#follower?.state ?? this.#whyUnknown
  }

  view(rank: number): CacheView | undefined {
    return this.#views.get(rank)
  }

  /** Whether a new record speaks of the same process with the same cache, reached in the same way. */
  isSameCache(record: WorkerRecord): boolean {
    const old = this.#record
    return (
      old.ext?.instance_id === record.ext?.instance_id &&
      old.kv_block_size === record.kv_block_size &&
      old.kv_events_endpoint === record.kv_events_endpoint &&
      old.url === record.url &&
      old.model_name === record.model_name &&
      old.engine === record.engine &&
      old.dp_rank === record.dp_rank &&
      old.dp_size === record.dp_size &&
      old.request_transport === record.request_transport
    )
  }

  /** @param record one that `isSameCache` */
  update(record: WorkerRecord): void {
    this.#record = record
  }

  /** Has its views brought anew; until they are there the old ones stay. */
  refresh(): void {
    this.#follower?.refresh()
  }

  /** Forgets what it holds, at once; resolves when its events are unsubscribed. */
  async close(): Promise<void> {
    for (const view of new Set(this.#views.values())) view.close()
    this.#views.clear()
    await this.#follower?.stop()
  }
}
