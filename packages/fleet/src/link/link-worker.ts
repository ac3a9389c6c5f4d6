import { EventEmitter } from 'node:events'
import { z } from 'zod'
import { type LinkRefusedError, TransportError } from '../errors.js'
import {
  clockOption,
  durationMs,
  loggerOption,
  parseOptions,
  part,
  randomOption,
  tokenOption,
} from '../options.js'
import { sleep } from '../ports/clock.js'
import type { KvEventSource, LoadReport } from '../ports/kv-events.js'
import type { WorkerRequestHandler } from '../ports/request-transport.js'
import { parseWorkerRecord, type WorkerRecord } from '../records/worker-record.js'
import type { FleetSettings } from '../settings.js'
import { joinUrl } from './join-url.js'
import { LinkLimits } from './limits.js'
import type { LinkDialer } from './link-channel.js'
import { type LinkWelcome, Membership, type MembershipEvent } from './membership.js'
import { dialWebSocket } from './web-socket-channel.js'

const Options = z.strictObject({
  /** Servers to join, as in `ws://server:8000`; http URLs will do; the path defaults to `LINK_PATH`. */
  join: z.union([z.string(), z.array(z.string()).min(1)]),
  record: part<z.input<typeof WorkerRecord>>('a worker record'),
  /** What this worker knows of settings that it must share with its servers. */
  settings: part<FleetSettings>('an object of settings').default(() => ({})),
  handler: part<WorkerRequestHandler>('a function'),
  kvEvents: part<KvEventSource>('a KvEventSource').optional(),
  load: part<() => LoadReport>('a function').optional(),
  loadIntervalMs: durationMs().default(1_000),
  /** Bearer token for servers that want one. */
  token: tokenOption,
  /** Told to servers in the hello, for their logs. */
  version: z.string().max(64).default(''),
  /** From the start of a connection attempt until the WebSocket is open. */
  connectTimeoutMs: durationMs().default(10_000),
  /** How long `drain` waits for running requests. */
  drainTimeoutMs: durationMs().default(30_000),
  /** Whether a refusal is tried again, at the longest pause; by default it is final for that server. */
  retriesRefusal: z.boolean().default(false),
  /** Pauses between attempts: from half of `firstMs`, doubling, never more than `maxMs`. */
  backoff: z
    .strictObject({ firstMs: durationMs().default(250), maxMs: durationMs().default(10_000) })
    .prefault({}),
  limits: LinkLimits.prefault({}),
  /** Opens connections; WebSockets unless told otherwise. */
  dial: part<LinkDialer>('a function').default(() => dialWebSocket),
  clock: clockOption,
  random: randomOption,
  logger: loggerOption,
})
export type LinkWorkerOptions = z.input<typeof Options>

/** What happens between a worker and one of its servers. */
export type LinkWorkerEvent = MembershipEvent & { readonly atMs: number }

/**
 * The worker's end of its links: joins every server named, stays joined through their restarts, and answers what they ask.
 * Emits `state` for whoever wants to watch.
 */
export class LinkWorker extends EventEmitter<{ state: [LinkWorkerEvent] }> {
  /**
   * Resolves with each server's welcome, in the order of `join`, once all of them let us in; rejects with LinkRefusedError
   * when one refuses for good, with TransportError `INFERA_FLEET_CLOSED` when closed before.
   */
  readonly joined: Promise<readonly LinkWelcome[]>
  readonly #options: z.output<typeof Options>
  readonly #record: WorkerRecord
  readonly #members: Membership[] = []
  readonly #rejectJoined: ((error: Error) => void)[] = []
  #state: 'idle' | 'open' | 'draining' | 'closed' = 'idle'
  #runningRequests = 0
  #idleWaiters: (() => void)[] = []
  #drained: Promise<void> | undefined
  #closing: Promise<void> | undefined

  /**
   * @throws InvalidFleetOptionsError
   * @throws InvalidRecordError
   */
  constructor(options: LinkWorkerOptions) {
    super()
    this.#options = parseOptions('LinkWorker', Options, options)
    this.#record = parseWorkerRecord(this.#options.record)
    const urls = new Set([this.#options.join].flat().map(joinUrl))
    this.joined = Promise.all([...urls].map((url) => this.#addMember(url)))
    // Who does not look at `joined` learns of a refusal from the event and the log.
    this.joined.catch(() => {})
  }

  get record(): WorkerRecord {
    return this.#record
  }

  get state(): 'idle' | 'open' | 'draining' | 'closed' {
    return this.#state
  }

  /** Requests that a handler is at work on. */
  get runningRequests(): number {
    return this.#runningRequests
  }

  /** Begins to join. Idempotent. */
  start(): void {
    if (this.#state !== 'idle') return
    this.#state = 'open'
    for (const member of this.#members) member.start()
  }

  /**
   * Asks every server for no new work, then waits until running requests have ended, at most `drainTimeoutMs`. Stays joined.
   * Idempotent.
   */
  drain(): Promise<void> {
    this.#drained ??= this.#drain()
    return this.#drained
  }

  /** Drains and leaves. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Leaves now; running handlers are aborted. Idempotent. */
  destroy(): void {
    this.#end()
    for (const member of this.#members) member.destroy()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #drain(): Promise<void> {
    if (this.#state !== 'open') return
    this.#state = 'draining'
    const { clock, drainTimeoutMs, logger } = this.#options
    const finished = new AbortController()
    const idle = Promise.all(this.#members.map((member) => member.drain()))
      .then(() => this.#whenIdle())
      .then(() => finished.abort())
    const timeout = sleep(clock, drainTimeoutMs, finished.signal).then(
      () => logger.warn({ runningRequests: this.#runningRequests, drainTimeoutMs }, 'drain timed out'),
      () => {
        // Aborted, because everything ended in time.
      },
    )
    await Promise.race([idle, timeout])
  }

  async #close(): Promise<void> {
    await this.drain()
    this.#end()
    await Promise.all(this.#members.map((member) => member.close()))
  }

  #end(): void {
    this.#state = 'closed'
    const { worker_id } = this.#record
    const error = new TransportError(
      'INFERA_FLEET_CLOSED',
      worker_id,
      `worker '${worker_id}' was closed before it joined`,
    )
    for (const reject of this.#rejectJoined) reject(error)
  }

  #addMember(url: string): Promise<LinkWelcome> {
    const { join: _join, record: _record, ...shared } = this.#options
    return new Promise((resolve, reject) => {
      this.#rejectJoined.push(reject)
      this.#members.push(
        new Membership({
          ...shared,
          kvEvents: shared.kvEvents,
          load: shared.load,
          token: shared.token,
          url,
          record: () => (this.#state === 'draining' ? { ...this.#record, status: 'draining' } : this.#record),
          onRequest: (change) => this.#countRequest(change),
          onEvent: (event) => {
            if (event.type === 'welcomed') resolve({ url, server: event.server, settings: event.settings })
            if (event.type === 'refused' && !shared.retriesRefusal)
              reject(event.error satisfies LinkRefusedError)
            this.emit('state', { ...event, atMs: shared.clock.now() })
          },
        }),
      )
    })
  }

  #countRequest(change: 1 | -1): void {
    this.#runningRequests += change
    if (this.#runningRequests === 0) for (const resolve of this.#idleWaiters.splice(0)) resolve()
  }

  async #whenIdle(): Promise<void> {
    if (this.#runningRequests === 0) return
    await new Promise<void>((resolve) => {
      this.#idleWaiters.push(resolve)
    })
  }
}
