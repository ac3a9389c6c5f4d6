import type { Msg, NatsConnection, Subscription } from '@nats-io/transport-node'
import { z } from 'zod'
import { bound, durationMs, parseOptions, part } from '../options.js'
import { sleep } from '../ports/clock.js'
import type { WorkerRequestHandler } from '../ports/request-transport.js'
import { brokerOptions, NatsBroker } from './broker.js'
import { CancelledInboxes } from './cancelled-inboxes.js'
import { decodeEnvelope, EnvelopeError, knownCaps } from './envelope.js'
import { natural, replyHeaders } from './frames.js'
import { cancelSubject, requestSubject } from './names.js'
import { RequestParts } from './request-parts.js'
import { WorkerJob } from './worker-job.js'
import { WorkerQueue } from './worker-queue.js'

const Options = z.strictObject({
  ...brokerOptions,
  name: z.string().default('infera-worker-req'),
  workerId: z.string().min(1).max(512),
  handler: part<WorkerRequestHandler>('a WorkerRequestHandler'),
  /** Above 0 requests come through a queue too, so that servers can throttle; the number itself is theirs to keep. */
  maxPending: z.int().nonnegative().default(0),
  /** Longest silence of the engine; 0: none. */
  idleTimeoutMs: z.literal(0).or(durationMs()).default(900_000),
  /** Longest life of a request; 0: none. */
  totalTimeoutMs: z.literal(0).or(durationMs()).default(0),
  /** How far a front end's clock may be behind ours before its deadlines are taken for passed. */
  deadlineGraceMs: z.number().nonnegative().default(5_000),
  /** Requests running at once; one more is refused with 503. */
  requestsMax: bound().default(8192),
  /** Largest request that comes in pieces. */
  requestBytesMax: bound().default(256 * 1024 * 1024),
  /** All those together that are not whole yet. */
  arrivingBytesMax: bound().default(512 * 1024 * 1024),
  /** Between two pieces of a request. */
  partTimeoutMs: durationMs().default(30_000),
  /** For whatever is asked of JetStream. */
  jetStreamTimeoutMs: durationMs().default(2_000),
  /** How often the queue is looked after. */
  queueCheckIntervalMs: durationMs().default(5_000),
  /** Between two looks at a queue that is to run empty. */
  drainPollIntervalMs: durationMs().default(200),
})
export type NatsWorkerOptions = z.input<typeof Options>

/**
 * The worker's side of requests over NATS: takes them from the broker, has them answered by a handler and sends the answer on.
 * Understands front ends of Infera 0.1 and answers them as that does.
 */
export class NatsWorker {
  readonly #options: z.output<typeof Options>
  readonly #broker: NatsBroker
  readonly #queue: WorkerQueue | undefined
  readonly #jobs = new Map<string, WorkerJob>()
  readonly #running = new Set<Promise<void>>()
  readonly #acknowledging = new Set<Promise<void>>()
  readonly #cancelled: CancelledInboxes
  readonly #parts: RequestParts
  #lostInboxes: string[] = []
  #requests: Subscription | undefined
  #cancels: Subscription | undefined
  #state: 'open' | 'draining' | 'closed' = 'open'
  #stopping: Promise<void> | undefined

  /**
   * Starts to connect, and serves from then on whenever the broker is there.
   * @throws InvalidFleetOptionsError
   */
  constructor(options: NatsWorkerOptions) {
    this.#options = parseOptions('NatsWorker', Options, options)
    const { clock, random, logger, workerId, maxPending, idleTimeoutMs } = this.#options
    this.#cancelled = new CancelledInboxes({ clock, lifeMs: 2 * (idleTimeoutMs || 900_000) })
    this.#parts = new RequestParts({
      sizeBytesMax: this.#options.requestBytesMax,
      heldBytesMax: this.#options.arrivingBytesMax,
      timeoutMs: this.#options.partTimeoutMs,
      clock,
    })
    const { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs } = this.#options
    this.#broker = new NatsBroker(
      { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs, clock, random, logger },
      {
        onConnection: (connection) => this.#subscribe(connection),
        onDown: () => this.#loseAll(),
        onUp: () => this.#tellLost(),
      },
    )
    if (maxPending > 0) {
      this.#queue = new WorkerQueue({
        ...{ clock, random, logger, workerId },
        broker: this.#broker,
        timeoutMs: this.#options.jetStreamTimeoutMs,
        checkIntervalMs: this.#options.queueCheckIntervalMs,
        onMessage: (message) => this.#acceptQueued(message),
      })
    }
  }

  /** What this worker's record is to say in `ext`, so that front ends of ours use what both know. */
  get recordExt(): { readonly nats: 'core' | 'jetstream'; readonly caps: readonly string[] } {
    // Heartbeats are understood by our front ends and not sent by this worker.
    const caps = knownCaps.filter((cap) => cap !== 'heartbeat')
    return { nats: this.#queue ? 'jetstream' : 'core', caps }
  }

  /** Requests running now. */
  get runningRequests(): number {
    return this.#jobs.size
  }

  /**
   * Resolves once requests can arrive: the broker is reached, and the queue bound where there is one.
   * @throws the signal's reason
   */
  async ready(options: { signal?: AbortSignal } = {}): Promise<void> {
    const connection = await this.#broker.ready(options.signal)
    // The broker has seen the subscriptions when it has answered a ping that came after them.
    await connection.flush()
    if (this.#queue) await this.#queue.bound
  }

  /**
   * Takes no more requests, and ends. With `drain` those that run, and those that wait in the queue, have `timeoutMs` to end; what
   * then still runs is handed back where the front end can go on elsewhere, and cancelled where it cannot. Without `drain`
   * everything is cancelled at once. Deregister the worker first. Idempotent: the first call counts.
   */
  stop(options: { drain?: boolean; timeoutMs?: number } = {}): Promise<void> {
    this.#stopping ??= this.#stop(options.drain ?? true, options.timeoutMs ?? 30_000)
    return this.#stopping
  }

  /** `stop` with its defaults. */
  close(): Promise<void> {
    return this.stop()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** Vanishes: nothing is said to anybody. */
  async destroy(): Promise<void> {
    this.#state = 'closed'
    for (const job of this.#jobs.values()) job.destroy('worker was destroyed')
    await this.#broker.destroy()
    await this.#queue?.unbind()
    this.#parts.clear()
    await Promise.all(this.#running)
  }

  async #stop(drain: boolean, timeoutMs: number): Promise<void> {
    const { clock } = this.#options
    const deadlineMs = clock.now() + timeoutMs
    if (drain && timeoutMs > 0) await this.#queueIsEmpty(deadlineMs)
    if (this.#state === 'open') this.#state = 'draining'
    this.#requests?.unsubscribe()
    await this.#queue?.unbind()
    this.#parts.clear()
    if (drain && timeoutMs > 0) await this.#jobsEnded(Math.max(0, deadlineMs - clock.now()))
    if (drain) for (const job of [...this.#jobs.values()]) if (job.isMigratable) job.handBack()
    for (const job of [...this.#jobs.values()]) job.fail('request cancelled', 503)
    await Promise.all(this.#running)
    await Promise.all(this.#acknowledging)
    await this.#queue?.delete()
    this.#cancels?.unsubscribe()
    this.#state = 'closed'
    await this.#broker.close()
  }

  /** Requests that were let into the queue are answered: nobody else can take them. */
  async #queueIsEmpty(deadlineMs: number): Promise<void> {
    const { clock, drainPollIntervalMs } = this.#options
    while (this.#queue && clock.now() < deadlineMs) {
      const waiting = await this.#queue.waiting()
      if (!waiting) return
      await sleep(clock, Math.min(drainPollIntervalMs, Math.max(0, deadlineMs - clock.now())))
    }
  }

  async #jobsEnded(withinMs: number): Promise<void> {
    const { clock } = this.#options
    if (this.#running.size === 0 || withinMs <= 0) return
    const waited = new AbortController()
    await Promise.race([
      Promise.all(this.#running),
      sleep(clock, withinMs, waited.signal).catch(() => {
        // The requests were faster.
      }),
    ])
    waited.abort()
  }

  #subscribe(connection: NatsConnection): void {
    const { workerId } = this.#options
    if (this.#state === 'open') {
      this.#requests = connection.subscribe(requestSubject(workerId), {
        callback: (_error, message) => this.#acceptDirect(message),
      })
    }
    this.#cancels = connection.subscribe(cancelSubject(workerId), {
      callback: (_error, message) => this.#acceptCancel(message),
    })
  }

  #acceptDirect(message: Msg): void {
    const queuedInbox = message.headers?.get('rs-inbox') ?? ''
    // Published for the queue, which brings it too.
    if (queuedInbox !== '' && this.#queue) return
    const inbox = queuedInbox || message.reply
    if (inbox) void this.#accept(inbox, message)
  }

  #acceptQueued(message: Msg): void {
    const inbox = message.headers?.get('rs-inbox') ?? ''
    const acknowledge = () => this.#acknowledge(message)
    // Without an inbox it is the stream's copy of a request that came directly.
    const job = inbox === '' ? undefined : this.#accept(inbox, message)
    const settled = (job ?? Promise.resolve()).then(acknowledge)
    this.#acknowledging.add(settled)
    void settled.finally(() => this.#acknowledging.delete(settled))
  }

  /** Never rejects. Waits for the broker's word: with its consumer deleted too early a request would stay in the stream. */
  async #acknowledge(message: Msg): Promise<void> {
    const { logger, workerId, jetStreamTimeoutMs } = this.#options
    try {
      const { connection } = this.#broker
      if (message.reply) await connection?.request(message.reply, '+ACK', { timeout: jetStreamTimeoutMs })
    } catch (error) {
      const fields = { workerId, error: error instanceof Error ? error.message : String(error) }
      logger.debug(fields, 'the broker does not confirm that a request has ended')
    }
  }

  #acceptCancel(message: Msg): void {
    // A front end that asks whether anybody is here.
    if (message.reply) message.respond('')
    const inbox = message.string()
    if (inbox === '') return
    this.#cancelled.add(inbox)
    this.#parts.drop(inbox)
    this.#jobs.get(inbox)?.fail('request cancelled', 499)
  }

  /** @returns what settles when the request has ended; undefined when it was not taken */
  #accept(inbox: string, message: Msg): Promise<void> | undefined {
    const { logger, workerId, requestsMax, deadlineGraceMs } = this.#options
    if (this.#state === 'closed' || this.#cancelled.has(inbox) || this.#jobs.has(inbox)) return undefined
    const part = message.headers?.get('rs-part')
    let headBytes = natural(message.headers?.get('rs-body'))
    let payload = message.data
    if (part) {
      const result = this.#parts.add(inbox, part, payload, headBytes)
      if (result.type === 'refused') return this.#refuse(inbox, result.reason, 413)
      if (result.type === 'more') {
        const headers = replyHeaders('ack', { part: String(result.arrived) })
        this.#broker.connection?.publish(inbox, undefined, { headers })
        return undefined
      }
      payload = result.payload
      headBytes = result.headBytes
    }
    try {
      const { head, body } = decodeEnvelope(payload, headBytes)
      // Nobody waits for it any more: it lay in a queue while this worker was away.
      if (head.deadlineMs !== undefined && head.deadlineMs + deadlineGraceMs < Date.now()) return undefined
      if (this.#jobs.size >= requestsMax)
        return this.#refuse(inbox, `worker runs ${requestsMax} requests`, 503)
      return this.#start(inbox, head, body)
    } catch (error) {
      if (!(error instanceof EnvelopeError)) throw error
      logger.warn({ workerId, error: error.message }, 'a request cannot be read')
      return this.#refuse(inbox, error.message, 400)
    }
  }

  #start(inbox: string, head: ReturnType<typeof decodeEnvelope>['head'], body: Uint8Array): Promise<void> {
    const { handler, idleTimeoutMs, totalTimeoutMs, clock } = this.#options
    const connection = () => this.#broker.connection
    const job = new WorkerJob({
      inbox,
      head,
      body,
      handler,
      connection,
      idleTimeoutMs,
      totalTimeoutMs,
      clock,
    })
    this.#jobs.set(inbox, job)
    const running = job.run().finally(() => {
      this.#jobs.delete(inbox)
      this.#running.delete(running)
    })
    this.#running.add(running)
    return running
  }

  #refuse(inbox: string, reason: string, status: number): undefined {
    const headers = replyHeaders('error', { status })
    this.#broker.connection?.publish(inbox, Buffer.from(reason), { headers })
  }

  /** Frames may be lost with the broker, so no answer under way is whole: the engine need not go on. */
  #loseAll(): void {
    for (const [inbox, job] of this.#jobs) {
      this.#lostInboxes.push(inbox)
      job.destroy('the broker is away')
    }
    this.#parts.clear()
  }

  /** Front ends that kept their own way to the broker are told, or they would wait. */
  #tellLost(): void {
    const lost = this.#lostInboxes
    this.#lostInboxes = []
    const headers = replyHeaders('error', {})
    for (const inbox of lost) {
      this.#broker.connection?.publish(inbox, Buffer.from('worker lost its broker'), { headers })
    }
    this.#queue?.check()
  }
}
