import { AckPolicy, type ConsumerInfo, DeliverPolicy, type JetStreamManager } from '@nats-io/jetstream'
import { createInbox, type Msg, type NatsConnection, nanos } from '@nats-io/transport-node'
import { TransportError } from '../errors.js'
import { KvReaderQueue } from '../kv-reader-queue.js'
import { Backoff } from '../link/backoff.js'
import { type Clock, sleep, type Timer } from '../ports/clock.js'
import type { KvEventMessage, KvViewMessage } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import type { NatsBroker } from './broker.js'
import { readDelivery } from './delivery.js'
import { KvRankView } from './kv-rank-view.js'
import { KvViewReader } from './kv-view-reader.js'
import { kvRankOf, kvStreamName, kvSubject, kvSyncSubject } from './names.js'
import { ensureStream, isAbsent, kvStream, managerOf } from './streams.js'

export interface KvSubscriptionOptions {
  readonly workerId: string
  readonly ranks: readonly number[]
  readonly broker: NatsBroker
  readonly bufferBytesMax: number
  readonly snapshotBytesMax: number
  readonly timeoutMs: number
  readonly heartbeatMs: number
  readonly probeIntervalMs: number
  readonly retryIntervalMs: number
  /** How long a relay may be absent before it counts as lost. */
  readonly lostAfterMs: number
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
  readonly signal: AbortSignal | undefined
  /** Called once when the iteration has ended. `isLost`: because the worker's relay is gone. */
  readonly onEnd: (isLost: boolean) => void
}

/** Why reading of the stream is begun again. */
type Ending = 'gap' | 'silence' | 'down' | 'behind' | 'over'

/** Whether a relay of ours answers, of the reference's nobody knows. */
type Presence = 'here' | 'gone' | 'unknown'

/**
 * The front end's end of one worker's events: a consumer of its own on the stream, from the oldest message on, put into order for
 * one reader. A gap in the deliveries is read again from where it began; where the stream itself has lost something, the relay
 * is asked for a fresh snapshot, and without a relay of ours the view begins anew from what the stream still has.
 */
export class NatsKvSubscription implements AsyncIterableIterator<KvEventMessage | KvViewMessage> {
  readonly #options: KvSubscriptionOptions
  readonly #queue: KvReaderQueue<KvEventMessage | KvViewMessage>
  readonly #views: ReadonlyMap<number, KvRankView>
  readonly #stop = new AbortController()
  readonly #onAbort = () => this.#finish(false)
  /** By rank, when a snapshot was last asked for. */
  readonly #wishedAtMs = new Map<number, number>()
  #hasBegun = false
  #presence: Presence = 'unknown'
  /** When the relay last answered, or could not be asked. */
  #seenAtMs = 0
  #streamCreated: string | undefined
  #lastStreamSequence = 0
  #endReading: (ending: Ending) => void = () => {}
  #wakeDrained: () => void = () => {}
  #probeTimer: Timer | undefined
  #viewReader: KvViewReader | undefined

  constructor(options: KvSubscriptionOptions) {
    this.#options = options
    this.#queue = new KvReaderQueue(options.bufferBytesMax, () => {
      if (this.#queue.isEmpty) this.#wakeDrained()
    })
    this.#views = new Map(options.ranks.map((rank) => [rank, new KvRankView(rank, options.snapshotBytesMax)]))
    options.signal?.addEventListener('abort', this.#onAbort, { once: true })
    if (options.signal?.aborted) this.#finish(false)
  }

  next(): Promise<IteratorResult<KvEventMessage | KvViewMessage>> {
    if (!this.#hasBegun) {
      this.#hasBegun = true
      void this.#run()
    }
    return this.#queue.next()
  }

  return(): Promise<IteratorResult<KvEventMessage | KvViewMessage>> {
    this.#finish(false)
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Ends the iteration, without an error. */
  close(): void {
    this.#finish(false)
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    const { broker, clock, random, logger, workerId, retryIntervalMs } = this.#options
    const stopped = this.#stop.signal
    const backoff = new Backoff({ firstMs: retryIntervalMs / 4, maxMs: retryIntervalMs * 8, random })
    const forget = broker.listen({ onDown: () => this.#endReading('down') })
    while (!stopped.aborted) {
      try {
        const connection = await broker.ready(stopped)
        if (this.#seenAtMs === Number.POSITIVE_INFINITY) this.#seenAtMs = clock.now()
        const ending = await this.#read(connection)
        if (ending !== 'gap') backoff.reset()
        if (ending === 'down') this.#seenAtMs = Number.POSITIVE_INFINITY
        if (ending === 'behind') await this.#drained()
        if (ending !== 'over') logger.debug({ workerId, ending }, 'kv events are read again')
        if (ending === 'behind') continue
      } catch (error) {
        if (stopped.aborted) break
        const fields = { workerId, error: error instanceof Error ? error.message : String(error) }
        logger.warn(fields, 'kv events cannot be read: trying on')
      }
      await sleep(clock, backoff.nextDelayMs(), stopped).catch(() => {
        // Only an abort ends a sleep early, and the loop's condition sees it.
      })
    }
    forget()
  }

  /** One consumer's life. */
  async #read(connection: NatsConnection): Promise<Ending> {
    const { workerId, timeoutMs, heartbeatMs, clock } = this.#options
    await this.#probe(connection)
    if (this.#stop.signal.aborted) return 'over'
    const manager = await managerOf(connection, timeoutMs)
    await ensureStream(manager, kvStream)
    const startSequence = await this.#startSequence(manager)
    const inbox = createInbox()
    const ended = new Promise<Ending>((resolve) => {
      this.#endReading = resolve
    })
    const place: Place = { consumerSequence: 0, leftInitially: Number.POSITIVE_INFINITY }
    let silence: Timer | undefined
    const hear = () => {
      silence?.cancel()
      silence = clock.setTimer(heartbeatMs * 2.5, () => this.#endReading('silence'))
    }
    const subscription = connection.subscribe(inbox, {
      callback: (_error, message) => {
        hear()
        this.#accept(connection, message, place)
      },
    })
    let consumer: ConsumerInfo | undefined
    try {
      hear()
      consumer = await manager.consumers.add(kvStreamName, {
        deliver_subject: inbox,
        filter_subject: kvSubject(workerId, '*'),
        ack_policy: AckPolicy.None,
        ...(startSequence > 0
          ? { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: startSequence }
          : { deliver_policy: DeliverPolicy.All }),
        max_deliver: 1,
        flow_control: true,
        idle_heartbeat: nanos(heartbeatMs),
        mem_storage: true,
      })
      // Of what was there at the start, some may have been delivered already.
      place.leftInitially = consumer.num_pending + consumer.delivered.consumer_seq - place.consumerSequence
      if (place.leftInitially <= 0) this.#caughtUp(connection)
      this.#armProbe()
      return await ended
    } finally {
      this.#endReading = () => {}
      silence?.cancel()
      this.#probeTimer?.cancel()
      this.#viewReader?.stop()
      this.#viewReader = undefined
      subscription.unsubscribe()
      if (consumer) this.#deleteConsumer(manager, consumer.name)
    }
  }

  /** @returns where reading goes on; 0 where it begins anew, with every view made ready for that */
  async #startSequence(manager: JetStreamManager): Promise<number> {
    const { created, state } = await manager.streams.info(kvStreamName)
    const next = this.#lastStreamSequence + 1
    const isSame = this.#streamCreated === created && state.last_seq >= this.#lastStreamSequence
    this.#streamCreated = created
    if (isSame && state.first_seq <= next) return next
    this.#lastStreamSequence = 0
    this.#wishedAtMs.clear()
    for (const view of this.#views.values()) {
      if (this.#presence === 'here') view.wait()
      else this.#queue.push(view.beginEmpty())
    }
    return 0
  }

  #accept(connection: NatsConnection, message: Msg, place: Place): void {
    if (this.#stop.signal.aborted) return
    const delivery = readDelivery(message)
    if (delivery.type === 'flowControl') message.respond()
    else if (delivery.type === 'ended') this.#endReading('gap')
    else if (delivery.type === 'heartbeat') {
      if (delivery.stalled) connection.publish(delivery.stalled)
      const last = delivery.lastConsumerSequence
      if (last !== undefined && last > place.consumerSequence) this.#endReading('gap')
    } else if (delivery.type === 'message') {
      if (delivery.consumerSequence !== place.consumerSequence + 1) {
        this.#endReading('gap')
        return
      }
      if (!this.#acceptPayload(connection, message)) {
        // Not taken: it is read again once the reader has caught up.
        this.#endReading('behind')
        return
      }
      place.consumerSequence += 1
      this.#lastStreamSequence = delivery.streamSequence
      place.leftInitially -= 1
      if (place.leftInitially === 0) this.#caughtUp(connection)
    }
  }

  /** @returns false when the reader is behind and the message was not taken */
  #acceptPayload(connection: NatsConnection, message: Msg): boolean {
    const rank = kvRankOf(message.subject)
    const view = rank === undefined ? undefined : this.#views.get(rank)
    if (!view) return true
    const { workerId, snapshotBytesMax, logger } = this.#options
    // A small view would keep alive the whole chunk of the socket that it lies in.
    const result = view.accept(new Uint8Array(message.data))
    if (result.type === 'nothing') return true
    if (result.type === 'tooLarge') {
      const why = `its cache takes more than ${snapshotBytesMax} bytes; raise snapshotBytesMax`
      const error = `worker '${workerId}' has no kv events: ${why}`
      this.#finish(false, new TransportError('INFERA_FLEET_WORKER_FAILED', workerId, error))
      return true
    }
    if (this.#queue.push(result.message)) return true
    if (this.#presence !== 'here') {
      view.takeBack()
      return false
    }
    // A fresh snapshot is shorter than all that was missed.
    logger.warn({ workerId, rank: view.rank }, 'the reader of kv events is behind: asking for a snapshot')
    this.#queue.dropRank(view.rank)
    view.wait()
    this.#wish(connection, view.rank)
    return true
  }

  /** All that the stream held was read. */
  #caughtUp(connection: NatsConnection): void {
    this.#wishSnapshots(connection)
    // A relay of ours brings snapshots. Of others the stream may have forgotten what a quiet worker once said.
    if (this.#presence === 'here' || this.#viewReader) return
    const { workerId, ranks, snapshotBytesMax, logger } = this.#options
    this.#viewReader = new KvViewReader(connection, {
      ...{ workerId, ranks, logger },
      hashesMax: Math.floor(snapshotBytesMax / BigUint64Array.BYTES_PER_ELEMENT),
      onView: (rank, hashes) => {
        if (this.#stop.signal.aborted || this.#presence === 'here') return
        const message = this.#views.get(rank)?.standIn(hashes ?? new BigUint64Array())
        if (message) this.#queue.push(message)
      },
    })
  }

  /** Ranks of a relay of ours whose marker the stream has lost. */
  #wishSnapshots(connection: NatsConnection): void {
    if (this.#presence !== 'here') return
    const { clock, timeoutMs } = this.#options
    for (const { isWaiting, rank } of this.#views.values()) {
      const wishedAtMs = this.#wishedAtMs.get(rank) ?? Number.NEGATIVE_INFINITY
      // A wish takes its time to be granted; each one costs the worker a whole snapshot.
      if (isWaiting && clock.now() - wishedAtMs >= timeoutMs) this.#wish(connection, rank)
    }
  }

  #wish(connection: NatsConnection, rank: number): void {
    this.#wishedAtMs.set(rank, this.#options.clock.now())
    connection.publish(kvSyncSubject(this.#options.workerId), String(rank))
  }

  #armProbe(): void {
    const { clock, probeIntervalMs, broker } = this.#options
    this.#probeTimer?.cancel()
    this.#probeTimer = clock.setTimer(probeIntervalMs, () => {
      const { connection } = broker
      if (!connection || this.#presence !== 'here') return
      void this.#probe(connection).then(() => {
        if (this.#stop.signal.aborted || !broker.connection) return
        this.#wishSnapshots(connection)
        this.#armProbe()
      })
    })
  }

  /** Asks for the worker's relay. Never rejects. */
  async #probe(connection: NatsConnection): Promise<void> {
    const { workerId, timeoutMs } = this.#options
    try {
      await connection.request(kvSyncSubject(workerId), '', { timeout: timeoutMs })
      this.#presence = 'here'
      this.#seenAtMs = this.#options.clock.now()
    } catch (error) {
      // Silence says nothing: only a broker that knows of nobody does.
      if (!isAbsent(error) || this.#presence !== 'here') return
      // It may be on its way back to a broker that was away.
      if (this.#options.clock.now() - this.#seenAtMs < this.#options.lostAfterMs) return
      this.#presence = 'gone'
      this.#finish(true)
    }
  }

  #drained(): Promise<void> {
    if (this.#queue.isEmpty || this.#stop.signal.aborted) return Promise.resolve()
    return new Promise((resolve) => {
      this.#wakeDrained = resolve
    })
  }

  #deleteConsumer(manager: JetStreamManager, name: string): void {
    if (!this.#options.broker.connection) return
    manager.consumers.delete(kvStreamName, name).catch(() => {
      // It goes by itself once nobody listens.
    })
  }

  #finish(isLost: boolean, error?: TransportError): void {
    if (this.#stop.signal.aborted) return
    this.#stop.abort(new Error('the subscription has ended'))
    this.#options.signal?.removeEventListener('abort', this.#onAbort)
    this.#queue.end(error)
    this.#endReading('over')
    this.#wakeDrained()
    this.#options.onEnd(isLost)
  }
}

/** Where in one consumer's deliveries a reader is. */
interface Place {
  consumerSequence: number
  /** Messages of the stream's past that have not come yet. */
  leftInitially: number
}
