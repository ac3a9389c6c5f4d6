import { randomBytes } from 'node:crypto'
import type { Subscriber } from 'zeromq'
import type { KvReaderQueue } from '../kv-reader-queue.js'
import { Backoff } from '../link/backoff.js'
import { type Clock, sleep, type Timer } from '../ports/clock.js'
import type { KvEventMessage } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import type { ZmqCounts } from './counts.js'
import { formatEndpoint, type ZmqEndpoint } from './endpoints.js'
import { parseLive } from './frames.js'
import { NeedFiller } from './need-filler.js'
import { RankRow, type RowIncident, type RowNeed } from './rank-row.js'
import { isSync, syncPrefix } from './snapshot-frames.js'
import type { ZmqSockets } from './sockets.js'

/** Where one worker's events, replays and snapshots are; rank r is at port + r of each. */
export interface WorkerEndpoints {
  readonly events: ZmqEndpoint
  readonly replay: ZmqEndpoint | undefined
  readonly snapshot: ZmqEndpoint | undefined
}

export interface ReaderSettings {
  readonly topic: string
  readonly payloadBytesMax: number
  readonly snapshotBytesMax: number
  readonly receiveHighWaterMark: number
  readonly replyTimeoutMs: number
  readonly checkIntervalMs: number
  readonly retryMs: number
  readonly redialMs: number
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
}

export interface RankReaderOptions extends ReaderSettings {
  readonly workerId: string
  readonly rank: number
  readonly endpoints: WorkerEndpoints
  readonly heldBytesMax: number
  readonly sockets: ZmqSockets
  readonly queue: KvReaderQueue
  readonly counts: ZmqCounts
  readonly onUp: () => void
  readonly onDown: () => void
  /** The rank cannot be read; the text says why and what to change. */
  readonly onFailed: (why: string) => void
}

/** A replay may lead to a snapshot, and a restart to another replay; more than that is a faulty peer. */
const answersInRowMax = 3

/** Reads one rank: a SUB socket for its life, and a DEALER for each answer that its row needs. */
export class RankReader {
  readonly #options: RankReaderOptions
  readonly #row: RankRow
  readonly #stop = new AbortController()
  readonly #filler: NeedFiller
  readonly #backoff: Backoff
  #socket: Subscriber | undefined
  #hasBeenUp = false
  /** Whether batches are known, or at least supposed, to arrive from now on: only then is it of use to ask for others. */
  #isSynced = false
  #syncTopic: string | undefined
  #syncTimer: Timer | undefined
  #checkTimer: Timer | undefined
  #redialTimer: Timer | undefined
  #isConnected = false
  /** The need that is being filled, or was just now, with a pause after it. */
  #filling: { readonly need: RowNeed; readonly stop: AbortController; isPausing: boolean } | undefined
  /** Answers since the row last needed nothing. */
  #answersInRow = 0

  constructor(options: RankReaderOptions) {
    this.#options = options
    const { rank, endpoints, heldBytesMax } = options
    this.#backoff = new Backoff({
      firstMs: options.retryMs,
      maxMs: options.retryMs * 32,
      random: options.random,
    })
    this.#row = new RankRow({
      ...{ rank, heldBytesMax, canReplay: endpoints.replay !== undefined },
      canSnapshot: endpoints.snapshot !== undefined,
      onIncident: (incident) => this.#report(incident),
    })
    const { replay, snapshot } = endpoints
    this.#filler = new NeedFiller({ ...options, row: this.#row, replay, snapshot })
  }

  /** Connects; never throws. */
  start(): void {
    const { sockets, endpoints, rank, topic, receiveHighWaterMark } = this.#options
    const socket = sockets.subscriber(endpoints.events.host, receiveHighWaterMark)
    if (!socket) {
      this.#options.onFailed('too many sockets are open; raise socketsMax')
      return
    }
    this.#socket = socket
    socket.events.on('handshake', () => this.#connected())
    socket.events.on('disconnect', () => this.#disconnected())
    const address = formatEndpoint(endpoints.events, rank)
    try {
      socket.subscribe(topic)
      socket.connect(address)
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      this.#options.onFailed(`kv_events_endpoint cannot be connected to: ${address}: ${reason}`)
      return
    }
    this.#armRedial(socket, address)
    void this.#read(socket)
  }

  /**
   * The library connects again after a loss, but not after a fault of the peer, such as a frame beyond the bound or a handshake
   * that makes no sense. Then it is told to.
   */
  #armRedial(socket: Subscriber, address: string): void {
    const { clock, redialMs, logger, workerId, rank } = this.#options
    this.#redialTimer = clock.setTimer(redialMs, () => {
      this.#armRedial(socket, address)
      if (this.#isConnected) return
      logger.debug({ workerId, rank }, 'kv events are dialled anew')
      try {
        socket.disconnect(address)
      } catch {
        // Nothing is left of the connection that failed.
      }
      socket.connect(address)
    })
  }

  /** The reader has come back for more. */
  taken(): void {
    this.#fetch()
  }

  /** Idempotent. */
  close(): void {
    if (this.#stop.signal.aborted) return
    this.#stop.abort()
    this.#syncTimer?.cancel()
    this.#checkTimer?.cancel()
    this.#redialTimer?.cancel()
    this.#filling?.stop.abort()
    if (this.#socket) this.#options.sockets.close(this.#socket)
  }

  /** Never rejects. */
  async #read(socket: Subscriber): Promise<void> {
    try {
      for await (const frames of socket) {
        if (this.#stop.signal.aborted) return
        this.#accept(frames)
      }
    } catch (error) {
      if (this.#stop.signal.aborted) return
      this.#options.onFailed(`its socket failed: ${error instanceof Error ? error.message : String(error)}`)
    }
  }

  #accept(frames: readonly Uint8Array[]): void {
    if (isSync(frames)) {
      // One may be the late answer to an earlier connection.
      if (Buffer.from(frames[0] ?? []).toString('latin1') === this.#syncTopic) this.#synced()
      return
    }
    const batch = parseLive(frames, this.#options.payloadBytesMax)
    if (!batch) {
      this.#options.counts.malformedMessages += 1
      return
    }
    this.#options.counts.batches += 1
    this.#armCheck()
    this.#hand(this.#row.live(batch))
  }

  #connected(): void {
    if (this.#stop.signal.aborted) return
    this.#isConnected = true
    this.#options.onUp()
    if (!this.#options.endpoints.snapshot) {
      this.#synced()
      return
    }
    // Subscriptions are heard in the order they were made: when this one is answered, that of the events was heard too.
    this.#forgetSync()
    this.#syncTopic = syncPrefix + randomBytes(12).toString('base64url')
    this.#socket?.subscribe(this.#syncTopic)
    const { clock, replyTimeoutMs } = this.#options
    this.#syncTimer = clock.setTimer(replyTimeoutMs, () => this.#synced())
  }

  #synced(): void {
    this.#forgetSync()
    this.#isSynced = true
    if (this.#hasBeenUp) this.#hand(this.#row.reconnected())
    this.#hasBeenUp = true
    this.#armCheck()
    this.#fetch()
  }

  #forgetSync(): void {
    this.#syncTimer?.cancel()
    if (this.#syncTopic !== undefined) this.#socket?.unsubscribe(this.#syncTopic)
    this.#syncTopic = undefined
  }

  #disconnected(): void {
    if (this.#stop.signal.aborted) return
    this.#isConnected = false
    this.#isSynced = false
    this.#filling?.stop.abort()
    this.#forgetSync()
    this.#checkTimer?.cancel()
    this.#options.onDown()
  }

  #armCheck(): void {
    this.#checkTimer?.cancel()
    const { clock, checkIntervalMs, endpoints } = this.#options
    if (!this.#isSynced || !(endpoints.replay ?? endpoints.snapshot)) return
    this.#checkTimer = clock.setTimer(checkIntervalMs, () => {
      this.#row.check()
      this.#fetch()
      this.#armCheck()
    })
  }

  /** Hands messages to the reader, and has fetched what the row then needs. */
  #hand(messages: readonly KvEventMessage[], isRepair = false): void {
    const { queue, rank } = this.#options
    for (const message of messages) {
      // A snapshot always fits.
      if (queue.push(message, { isRepair }) || message.type === 'snapshot') continue
      const hasUnreadSnapshot = !queue.isDrained(rank, 'snapshot')
      const instead = this.#row.behind(message, { hasUnreadSnapshot })
      // What was not read since the last snapshot is of no use once there is another; but one that is never read costs no more.
      if (this.#row.need?.how === 'snapshot' && !hasUnreadSnapshot) queue.dropRank(rank)
      for (const each of instead) queue.push(each)
      break
    }
    this.#fetch()
  }

  #fetch(): void {
    const { need } = this.#row
    const filling = this.#filling
    // What is not needed any more is not waited for.
    if (filling && filling.need !== need && !filling.isPausing) filling.stop.abort()
    if (!need || filling || !this.#isSynced || this.#stop.signal.aborted) return
    if (need.whenDrained && !this.#options.queue.isDrained(this.#options.rank)) return
    void this.#fill(need)
  }

  /** Never rejects. */
  async #fill(need: RowNeed): Promise<void> {
    const filling = { need, stop: new AbortController(), isPausing: false }
    this.#filling = filling
    const messages = await this.#filler.fill(need, filling.stop.signal)
    const isAborted = filling.stop.signal.aborted
    // A pause is cut short by the end of the connection, but not by another need, as often as a faulty engine causes one.
    const pause = { need, stop: new AbortController(), isPausing: true }
    this.#filling = pause
    if (!isAborted) this.#hand(messages, true)
    // A need that is not filled, or that only ever leads to another, makes no hot loop.
    this.#answersInRow = this.#row.need ? this.#answersInRow + 1 : 0
    if (!this.#row.need) this.#backoff.reset()
    else if ((this.#row.need === need && !isAborted) || this.#answersInRow > answersInRowMax) {
      await sleep(this.#options.clock, this.#backoff.nextDelayMs(), pause.stop.signal).catch(() => {
        // The connection is gone, or all is over: `fetch` sees it.
      })
    }
    this.#filling = undefined
    this.#fetch()
  }

  #report(incident: RowIncident): void {
    const { counts, logger, workerId, rank } = this.#options
    counts[incidentCounts[incident]] += 1
    if (incident === 'duplicate') return
    const level = incident === 'gap' || incident === 'mixed' ? 'debug' : 'warn'
    logger[level]({ workerId, rank, incident }, 'kv events are not an unbroken row')
  }
}

const incidentCounts = {
  gap: 'gaps',
  restart: 'restarts',
  duplicate: 'duplicateBatches',
  emptied: 'emptiedViews',
  behind: 'readersBehind',
  mixed: 'malformedMessages',
} as const satisfies Record<RowIncident, keyof ZmqCounts>
