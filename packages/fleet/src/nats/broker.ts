import { type ConnectionOptions, connect, type NatsConnection } from '@nats-io/transport-node'
import { z } from 'zod'
import { Backoff } from '../link/backoff.js'
import { clockOption, durationMs, loggerOption, randomOption } from '../options.js'
import { sleep } from '../ports/clock.js'
import { readNatsUrl, redactNatsUrl } from './server-url.js'

/** Options shared by everything that talks to a broker. */
export const brokerOptions = {
  /** `nats://[user:password@|token@]host:port`, several separated by commas. Never logged with its credentials. */
  url: z.string().min(1).default('nats://127.0.0.1:4222'),
  /** TLS towards the broker, in the client library's own terms; none unless given or the broker demands it. */
  tls: z.custom<NonNullable<ConnectionOptions['tls']>>((value) => typeof value === 'object').optional(),
  /** For one attempt to connect. */
  connectTimeoutMs: durationMs().default(5_000),
  /** Between attempts to reach a broker that is away; they never end. */
  reconnectWaitMs: durationMs().default(1_000),
  /** A broker that answers no ping for two of these is away. */
  pingIntervalMs: durationMs().default(10_000),
  clock: clockOption,
  random: randomOption,
  logger: loggerOption,
}
const Options = z.strictObject({ ...brokerOptions, name: z.string() })
export type BrokerOptions = z.output<typeof Options>

export interface BrokerListener {
  /** A new connection: subscriptions are to be made on it. They outlive the interruptions that `onDown` and `onUp` tell of. */
  onConnection?(connection: NatsConnection): void
  /** The broker is reached again. What was said in between may be lost. */
  onUp?(): void
  /** The broker is away. */
  onDown?(): void
}

/**
 * A connection that never gives up. It is `connection` only while the broker is there, so that nothing is ever handed to a buffer
 * that might be sent minutes later.
 */
export class NatsBroker {
  readonly #options: BrokerOptions
  readonly #listeners = new Set<BrokerListener>()
  readonly #stop = new AbortController()
  readonly #running: Promise<void>
  #connection: NatsConnection | undefined
  #isUp = false
  #waiters: (() => void)[] = []

  constructor(options: BrokerOptions, listener: BrokerListener = {}) {
    this.#options = options
    this.#listeners.add(listener)
    this.#running = this.#run()
  }

  /** The connection, while the broker is reached. */
  get connection(): NatsConnection | undefined {
    return this.#isUp ? this.#connection : undefined
  }

  /** For messages: where the broker should be, without credentials. */
  get place(): string {
    return redactNatsUrl(this.#options.url)
  }

  listen(listener: BrokerListener): () => void {
    this.#listeners.add(listener)
    if (this.#connection) listener.onConnection?.(this.#connection)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Waits for the broker, at once when it is there.
   * @throws the signal's reason; an error once this was closed
   */
  async ready(signal?: AbortSignal): Promise<NatsConnection> {
    while (true) {
      signal?.throwIfAborted()
      this.#stop.signal.throwIfAborted()
      const { connection } = this
      if (connection) return connection
      await new Promise<void>((resolve) => {
        const done = () => {
          signal?.removeEventListener('abort', done)
          this.#waiters = this.#waiters.filter((waiter) => waiter !== done)
          resolve()
        }
        this.#waiters.push(done)
        signal?.addEventListener('abort', done, { once: true })
      })
    }
  }

  /** Sends what is buffered and hangs up. Idempotent. */
  async close(): Promise<void> {
    const connection = this.connection
    if (connection && !this.#stop.signal.aborted) {
      await connection.flush().catch(() => {
        // Gone in this moment: what was buffered has no way out.
      })
    }
    await this.destroy()
  }

  /** Hangs up at once. Idempotent. */
  async destroy(): Promise<void> {
    this.#stop.abort(new Error('the connection to the broker was closed'))
    this.#setUp(false)
    for (const waiter of this.#waiters) waiter()
    await this.#connection?.close()
    await this.#running
  }

  async #run(): Promise<void> {
    const { clock, random, logger, reconnectWaitMs } = this.#options
    const stopped = this.#stop.signal
    const backoff = new Backoff({ firstMs: reconnectWaitMs / 4, maxMs: reconnectWaitMs, random })
    let hasWarned = false
    while (!stopped.aborted) {
      try {
        const connection = await this.#connect()
        if (stopped.aborted) {
          await connection.close()
          return
        }
        hasWarned = false
        backoff.reset()
        await this.#serve(connection)
      } catch (error) {
        const fields = { broker: this.place, error: error instanceof Error ? error.message : String(error) }
        if (!hasWarned) logger.warn(fields, 'broker cannot be reached: trying on')
        hasWarned = true
      }
      if (stopped.aborted) return
      await sleep(clock, backoff.nextDelayMs(), stopped).catch(() => {
        // Only an abort ends a sleep early, and the loop's condition sees it.
      })
    }
  }

  #connect(): Promise<NatsConnection> {
    const { url, tls, name, connectTimeoutMs, reconnectWaitMs, pingIntervalMs } = this.#options
    return connect({
      ...readNatsUrl(url),
      ...(tls ? { tls } : {}),
      name,
      timeout: connectTimeoutMs,
      maxReconnectAttempts: -1,
      reconnectTimeWait: reconnectWaitMs,
      // Credentials may be put right at the broker while we wait.
      ignoreAuthErrorAbort: true,
      pingInterval: pingIntervalMs,
      maxPingOut: 2,
    })
  }

  /** Until the library gives the connection up for good, which it does only for what it cannot understand. */
  async #serve(connection: NatsConnection): Promise<void> {
    const { logger } = this.#options
    this.#connection = connection
    for (const listener of this.#listeners) listener.onConnection?.(connection)
    this.#setUp(true)
    for await (const status of connection.status()) {
      if (status.type === 'disconnect') {
        logger.warn({ broker: this.place }, 'broker is away: reconnecting')
        this.#setUp(false)
      } else if (status.type === 'reconnect') {
        logger.info({ broker: this.place }, 'broker is reached again')
        this.#setUp(true)
      } else if (status.type === 'error') {
        logger.warn({ broker: this.place, error: status.error.message }, 'broker reports an error')
      }
    }
    this.#setUp(false)
    this.#connection = undefined
  }

  #setUp(isUp: boolean): void {
    if (this.#isUp === isUp) return
    this.#isUp = isUp
    for (const listener of this.#listeners) {
      if (isUp) listener.onUp?.()
      else listener.onDown?.()
    }
    if (isUp) for (const waiter of [...this.#waiters]) waiter()
  }
}
