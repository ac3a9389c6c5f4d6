import { jetstream } from '@nats-io/jetstream'
import { createInbox, type Msg, type NatsConnection, headers as newHeaders } from '@nats-io/transport-node'
import { z } from 'zod'
import type { WorkerProblem } from '../checked/worker-problem.js'
import { TransportError } from '../errors.js'
import { RequestLimits } from '../http/request-limits.js'
import { bound, durationMs, parseOptions, part } from '../options.js'
import type { RequestTransport, TransportRequest, TransportResponse } from '../ports/request-transport.js'
import type { WorkerRecord } from '../records/worker-record.js'
import { QueueReader, type QueueReading } from './admission.js'
import { brokerOptions, NatsBroker } from './broker.js'
import { Canceller } from './canceller.js'
import { Exchange } from './exchange.js'
import { readReply } from './frames.js'
import { isAbsentWorker, Liveness } from './liveness.js'
import { requestStreamName, requestSubject } from './names.js'
import { type OutgoingRequest, type RequestFlags, tooLarge, writeRequest } from './outgoing-request.js'
import { ensureStream, isAbsent, managerOf, requestStream } from './streams.js'

const Options = z.strictObject({
  ...brokerOptions,
  name: z.string().default('infera-router-req'),
  /** Longest silence of a worker; 0: none. */
  idleTimeoutMs: z.literal(0).or(durationMs()).default(900_000),
  /** Longest life of a request; 0: none. */
  totalTimeoutMs: z.literal(0).or(durationMs()).default(0),
  /** Requests waiting or running at one worker from which on it gets no more, with 429; 0: no throttle. As at the workers. */
  maxPending: z.int().nonnegative().default(0),
  /** How long a reading of a worker's queue counts. */
  readingMaxAgeMs: durationMs().default(200),
  /** For whatever is asked of JetStream. */
  jetStreamTimeoutMs: durationMs().default(2_000),
  /** A worker that says what it has taken must do so within this. */
  ackTimeoutMs: durationMs().default(5_000),
  /** Workers with silent requests are asked after this often. */
  probeIntervalMs: durationMs().default(5_000),
  /** Between the three cancels of one request. */
  cancelIntervalMs: durationMs().default(1_000),
  /** Most bytes of one answer held for a reader that is slower than its worker; beyond, the answer breaks. */
  bufferBytesMax: bound().default(64 * 1024 * 1024),
  /** Pieces of a large request that are under way at once. */
  partsInFlightMax: bound().default(8),
  /** What a request's port does not say; by default `stream` as its body says, and not migratable. */
  flagsOf: part<(worker: WorkerRecord, request: TransportRequest) => RequestFlags>('a function').optional(),
})
export type NatsTransportOptions = z.input<typeof Options>

/** How long an answer to "does that worker have a queue" counts for workers of which nothing else is known. */
const modeMaxAgeMs = 5_000

/**
 * Requests to workers over NATS, as Infera 0.1 frames them, with what both ends know beyond it. While the broker is away every
 * request fails at once, and those that run are broken: frames may have been lost.
 */
export class NatsTransport implements RequestTransport {
  readonly kind = 'nats'
  readonly #options: z.output<typeof Options>
  readonly #broker: NatsBroker
  readonly #queues: QueueReader
  readonly #liveness: Liveness
  readonly #canceller: Canceller
  readonly #exchanges = new Map<string, { exchange: Exchange; workerId: string; isQueueless: boolean }>()
  readonly #inboxPrefix = createInbox()
  #nextInbox = 0
  #closing: Promise<void> | undefined
  #wakeClose: (() => void) | undefined

  /**
   * Starts to connect; requests fail until it has.
   * @throws InvalidFleetOptionsError
   */
  constructor(options: NatsTransportOptions = {}) {
    this.#options = parseOptions('NatsTransport', Options, options)
    const { clock, logger, jetStreamTimeoutMs, probeIntervalMs, cancelIntervalMs } = this.#options
    this.#queues = new QueueReader({ clock, logger, timeoutMs: jetStreamTimeoutMs })
    const connection = () => this.#broker.connection
    this.#liveness = new Liveness({ clock, intervalMs: probeIntervalMs, connection })
    this.#canceller = new Canceller({ clock, intervalMs: cancelIntervalMs, connection })
    const { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs, random } = this.#options
    this.#broker = new NatsBroker(
      { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs, clock, random, logger },
      {
        onConnection: (fresh) => {
          fresh.subscribe(`${this.#inboxPrefix}.*`, { callback: (_error, message) => this.#onReply(message) })
        },
        onDown: () => {
          this.#queues.forget()
          for (const { exchange } of [...this.#exchanges.values()]) exchange.lose('the broker is away')
        },
      },
    )
  }

  /**
   * Resolves while the broker is reached.
   * @throws the signal's reason
   */
  async ready(options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.#broker.ready(options.signal)
  }

  /**
   * Answers 429 itself where a worker's queue is full, and 413 where a request is larger than the broker carries to that worker.
   * @throws TransportError `INFERA_FLEET_UNREACHABLE`, `INFERA_FLEET_TIMEOUT`, `INFERA_FLEET_WORKER_FAILED`, `INFERA_FLEET_CLOSED`;
   *   the body throws `INFERA_FLEET_BROKEN`, `INFERA_FLEET_TIMEOUT` or `INFERA_FLEET_WORKER_FAILED`
   */
  async send(
    worker: WorkerRecord,
    request: TransportRequest,
    options: { signal?: AbortSignal } = {},
  ): Promise<TransportResponse> {
    options.signal?.throwIfAborted()
    const workerId = worker.worker_id
    if (this.#closing) throw new TransportError('INFERA_FLEET_CLOSED', workerId, 'nats transport is closed')
    const connection = this.#broker.connection
    if (!connection) throw this.#unreachable(workerId, `the broker at ${this.#broker.place} is away`)
    const { flagsOf, clock, totalTimeoutMs, idleTimeoutMs } = this.#options
    const lifeMs = totalTimeoutMs || idleTimeoutMs
    const outgoing = writeRequest(worker, request, {
      flags: flagsOf?.(worker, request) ?? {},
      deadlineMs: lifeMs > 0 ? Date.now() + lifeMs : undefined,
      payloadBytesMax: connection.info?.max_payload ?? 1_048_576,
    })
    if (typeof outgoing === 'string') throw this.#unreachable(workerId, outgoing)
    if (outgoing.type === 'tooLarge') return tooLarge(outgoing)
    const limits = new RequestLimits(clock, workerId, {
      idleTimeoutMs: idleTimeoutMs || undefined,
      totalTimeoutMs: totalTimeoutMs || undefined,
      signal: options.signal,
    })
    const exchange = this.#open(workerId, outgoing, limits)
    // The first part runs in this turn, so that close() finds the exchange.
    return await this.#dispatch(connection, worker, outgoing, exchange)
  }

  /** Whether anybody listens at the broker for that worker; what cannot be known, as without the broker, is no problem. */
  async probe(worker: WorkerRecord): Promise<WorkerProblem | undefined> {
    const { connection } = this.#broker
    const workerId = worker.worker_id
    if (!connection || !(await isAbsentWorker(connection, workerId, this.#options.jetStreamTimeoutMs))) return
    const message = `nobody listens at the broker ${this.#broker.place} for it: check its --nats-server, and that it runs`
    return { code: 'nats_no_responders', message, effect: 'unroutable' }
  }

  /** Takes no new request and waits for those that run. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    while (this.#exchanges.size > 0) {
      await new Promise<void>((resolve) => {
        this.#wakeClose = resolve
      })
    }
    this.#canceller.close()
    await this.#broker.close()
  }

  #open(workerId: string, outgoing: OutgoingRequest, limits: RequestLimits): Exchange {
    const { clock, bufferBytesMax } = this.#options
    const inbox = `${this.#inboxPrefix}.${(this.#nextInbox++).toString(36)}`
    const exchange: Exchange = new Exchange(
      {
        workerId,
        inbox,
        limits,
        isStream: outgoing.isStream,
        bufferBytesMax,
        onOver: (cancelWorker) => {
          this.#exchanges.delete(inbox)
          this.#liveness.remove(workerId, exchange)
          if (cancelWorker) this.#canceller.cancel(workerId, inbox)
          if (this.#exchanges.size === 0) this.#wakeClose?.()
        },
      },
      clock.now(),
    )
    this.#exchanges.set(inbox, { exchange, workerId, isQueueless: false })
    this.#liveness.add(workerId, exchange)
    return exchange
  }

  async #dispatch(
    connection: NatsConnection,
    worker: WorkerRecord,
    outgoing: OutgoingRequest,
    exchange: Exchange,
  ): Promise<TransportResponse> {
    const workerId = worker.worker_id
    const mode = await this.#modeOf(connection, worker)
    if (exchange.isOver) return exchange.response
    if (mode.type === 'full') {
      exchange.drop()
      return backlogOverLimit(workerId)
    }
    const entry = this.#exchanges.get(exchange.inbox)
    if (entry) entry.isQueueless = mode.type === 'core'
    const answered = exchange.response
    if (mode.type === 'jetstream' && outgoing.messages.length === 1) {
      await this.#publishQueued(connection, workerId, outgoing, exchange)
    } else await this.#publish(connection, workerId, outgoing, exchange)
    if (outgoing.acknowledges && (mode.type !== 'jetstream' || mode.waiting === 0)) this.#expectAck(exchange)
    return answered
  }

  async #modeOf(connection: NatsConnection, worker: WorkerRecord): Promise<Mode> {
    const { maxPending, readingMaxAgeMs } = this.#options
    const nats = worker.ext?.nats
    const workerId = worker.worker_id
    // Workers of ours take requests that are not queued, too; of others a queue may be the only way in.
    if (maxPending === 0 && typeof nats === 'string') {
      return { type: nats === 'core' ? 'core' : 'coreBesideQueue' }
    }
    const maxAgeMs = maxPending > 0 ? readingMaxAgeMs : modeMaxAgeMs
    const reading = await this.#queues.read(connection, workerId, maxAgeMs)
    const mode = chooseMode(reading, maxPending, nats === 'jetstream')
    if (mode.type !== 'unbound') return mode
    // Its queue would keep the request for whoever comes next under that name. One of ours may just be binding it.
    if (typeof nats === 'string') return { type: 'coreBesideQueue' }
    await this.#liveness.probe(workerId)
    return { type: 'jetstream', waiting: 1 }
  }

  async #publish(
    connection: NatsConnection,
    workerId: string,
    outgoing: OutgoingRequest,
    exchange: Exchange,
  ): Promise<void> {
    const subject = requestSubject(workerId)
    const { partsInFlightMax } = this.#options
    for (const [index, message] of outgoing.messages.entries()) {
      // So many may be on the way, or the broker would drop a worker that cannot take them as fast as they come.
      await exchange.partsArrived(index - partsInFlightMax + 1)
      if (exchange.isOver) return
      try {
        connection.publish(subject, message.payload, {
          reply: exchange.inbox,
          ...(message.headers ? { headers: message.headers } : {}),
        })
      } catch (error) {
        exchange.lose(error instanceof Error ? error.message : String(error))
      }
    }
  }

  async #publishQueued(
    connection: NatsConnection,
    workerId: string,
    outgoing: OutgoingRequest,
    exchange: Exchange,
  ): Promise<void> {
    const timeout = this.#options.jetStreamTimeoutMs
    const message = outgoing.messages[0]
    if (!message) return
    const headers = message.headers ?? newHeaders()
    headers.set('rs-inbox', exchange.inbox)
    const publish = () =>
      jetstream(connection, { timeout }).publish(requestSubject(workerId), message.payload, {
        headers,
        timeout,
        retries: 0,
      })
    try {
      try {
        await publish()
      } catch (error) {
        // Only where certainly nothing was stored may it be sent again.
        if (!isAbsent(error)) throw error
        await ensureStream(await managerOf(connection, timeout), requestStream)
        await publish()
      }
    } catch (error) {
      exchange.lose(`its queue did not take the request: ${error instanceof Error ? error.message : error}`)
    }
  }

  #expectAck(exchange: Exchange): void {
    const { clock, ackTimeoutMs } = this.#options
    if (exchange.isOver || exchange.isAnswered) return
    const timer = clock.setTimer(ackTimeoutMs, () => {
      if (!exchange.isAnswered) exchange.lose(`it did not take the request within ${ackTimeoutMs} ms`)
    })
    exchange.response.then(
      () => timer.cancel(),
      () => timer.cancel(),
    )
  }

  #onReply(message: Msg): void {
    const entry = this.#exchanges.get(message.subject)
    if (!entry) return
    const reply = readReply(message)
    if (reply.type === 'noResponders') {
      if (!entry.exchange.isAnswered)
        entry.exchange.lose('nobody listens at the broker for it (no responders)')
    } else if (reply.type === 'publishAck') this.#onPublishAck(entry, reply.sequence)
    else if (reply.type !== 'unknown') entry.exchange.accept(reply, this.#options.clock.now())
  }

  /** The stream took a copy of a request that was not meant for it, and the broker can no longer tell that nobody listens. */
  #onPublishAck(entry: { workerId: string; isQueueless: boolean }, sequence: number | undefined): void {
    const connection = this.#broker.connection
    void this.#liveness.probe(entry.workerId)
    // Nobody would ever take it out again: it would lie in the broker's memory.
    if (!connection || sequence === undefined || !entry.isQueueless) return
    const { logger, jetStreamTimeoutMs } = this.#options
    managerOf(connection, jetStreamTimeoutMs)
      .then((manager) => manager.streams.deleteMessage(requestStreamName, sequence, false))
      .catch((error: unknown) => {
        const fields = { sequence, error: error instanceof Error ? error.message : String(error) }
        logger.debug(fields, 'the copy of a request stays in the stream')
      })
  }

  #unreachable(workerId: string, why: string): TransportError {
    return new TransportError(
      'INFERA_FLEET_UNREACHABLE',
      workerId,
      `worker '${workerId}' cannot be reached: ${why}`,
    )
  }
}

type Mode =
  | { readonly type: 'core' | 'coreBesideQueue' | 'full' | 'unbound' }
  | { readonly type: 'jetstream'; readonly waiting: number }

/** Where a request goes. A queue that cannot be read refuses nobody. */
function chooseMode(reading: QueueReading, maxPending: number, saysQueued: boolean): Mode {
  if (reading.type === 'absent') return { type: 'core' }
  if (reading.type === 'unreadable') return { type: saysQueued ? 'jetstream' : 'coreBesideQueue', waiting: 1 }
  if (!reading.isBound) return { type: 'unbound' }
  if (maxPending > 0 && reading.backlog >= maxPending) return { type: 'full' }
  return { type: 'jetstream', waiting: reading.waiting }
}

function backlogOverLimit(workerId: string): TransportResponse {
  const error = {
    message: `worker ${workerId} request backlog over limit`,
    type: 'rate_limit_error',
    code: 429,
  }
  return {
    status: 429,
    headers: { 'content-type': 'application/json', 'retry-after': '1' },
    body: (async function* () {
      yield Buffer.from(JSON.stringify({ error }))
    })(),
  }
}
