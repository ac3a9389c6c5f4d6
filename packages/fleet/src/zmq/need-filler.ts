import type { Clock } from '../ports/clock.js'
import type { KvEventMessage } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { ZmqCounts } from './counts.js'
import type { ZmqEndpoint } from './endpoints.js'
import type { RankRow, RowNeed } from './rank-row.js'
import { fetchReplay } from './replay-client.js'
import { fetchSnapshot } from './snapshot-client.js'
import type { ZmqSockets } from './sockets.js'

export interface NeedFillerOptions {
  readonly workerId: string
  readonly rank: number
  readonly row: RankRow
  readonly replay: ZmqEndpoint | undefined
  readonly snapshot: ZmqEndpoint | undefined
  readonly payloadBytesMax: number
  readonly snapshotBytesMax: number
  readonly replyTimeoutMs: number
  readonly sockets: ZmqSockets
  readonly counts: ZmqCounts
  readonly clock: Clock
  readonly logger: Logger
  readonly onFailed: (why: string) => void
}

/** A snapshot that nobody answers with, so many times in a row, is done without for now. */
const silencesMax = 3

/** Fetches what a row needs, and hands it to the row. */
export class NeedFiller {
  readonly #options: NeedFillerOptions
  #silences = 0

  constructor(options: NeedFillerOptions) {
    this.#options = options
  }

  /** Never rejects. @returns what the reader gets; nothing when the signal aborts, or the need stays */
  fill(need: RowNeed, signal: AbortSignal): Promise<KvEventMessage[]> {
    return need.how === 'replay' ? this.#replay(need, signal) : this.#snapshot(need, signal)
  }

  async #replay(need: Extract<RowNeed, { how: 'replay' }>, signal: AbortSignal): Promise<KvEventMessage[]> {
    const { replay, row, sockets, rank, counts, clock, logger, workerId } = this.#options
    const { payloadBytesMax, snapshotBytesMax, replyTimeoutMs } = this.#options
    if (!replay) return row.replayed(need, undefined)
    counts.replays += 1
    const batches = await fetchReplay(
      {
        ...{ sockets, endpoint: replay, rank, clock, payloadBytesMax, signal },
        ...{ bytesMax: snapshotBytesMax, idleMs: replyTimeoutMs },
      },
      need.from,
    ).catch((error: unknown) => {
      logger.error({ workerId, rank, error: String(error) }, 'a replay of kv events failed')
      return undefined
    })
    if (signal.aborted) return []
    if (!batches) {
      counts.replaysFailed += 1
      logger.warn({ workerId, rank, from: need.from }, 'the engine replays no kv events')
    }
    return row.replayed(need, batches)
  }

  async #snapshot(
    need: Extract<RowNeed, { how: 'snapshot' }>,
    signal: AbortSignal,
  ): Promise<KvEventMessage[]> {
    const { snapshot, row, sockets, rank, counts, clock, logger, workerId } = this.#options
    const { snapshotBytesMax, replyTimeoutMs } = this.#options
    if (!snapshot) return row.snapshot(need, 0, undefined)
    counts.snapshots += 1
    const result = await fetchSnapshot({
      ...{ sockets, endpoint: snapshot, rank, clock, snapshotBytesMax, signal },
      idleMs: replyTimeoutMs,
    }).catch((error: unknown) => ({ type: 'failed', why: String(error) }) as const)
    if (signal.aborted) return []
    if (result.type === 'snapshot') {
      this.#silences = 0
      return row.snapshot(need, result.sequence, result.payloads)
    }
    counts.snapshotsFailed += 1
    if (result.type === 'tooLarge') {
      this.#options.onFailed(`its cache takes more than ${snapshotBytesMax} bytes; raise snapshotBytesMax`)
      return []
    }
    logger.warn({ workerId, rank, ...result }, 'no snapshot of this worker could be had')
    // Who is busy will have time.
    if (result.type === 'turnedAway') return []
    this.#silences += 1
    if (this.#silences < silencesMax && !need.isCheck) return []
    this.#silences = 0
    return row.snapshot(need, 0, undefined)
  }
}
