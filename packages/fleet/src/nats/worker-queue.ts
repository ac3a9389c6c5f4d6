import { createInbox, type Msg, type NatsConnection, type Subscription } from '@nats-io/transport-node'
import { Backoff } from '../link/backoff.js'
import { sleep } from '../ports/clock.js'
import type { BrokerOptions, NatsBroker } from './broker.js'
import { natsToken, requestStreamName } from './names.js'
import { ensureStream, managerOf, readConsumer, requestConsumer, requestStream } from './streams.js'

export interface WorkerQueueOptions extends Pick<BrokerOptions, 'clock' | 'random' | 'logger'> {
  readonly workerId: string
  readonly broker: NatsBroker
  readonly timeoutMs: number
  /** The queue is looked after this often: streams and consumers can be deleted, and this one lives in the broker's memory. */
  readonly checkIntervalMs: number
  readonly onMessage: (message: Msg) => void
}

/** A throttled worker's consumer on the stream of requests: made, bound, and made again whenever the broker has lost it. */
export class WorkerQueue {
  readonly #options: WorkerQueueOptions
  readonly #stop = new AbortController()
  readonly #running: Promise<void>
  #subscription: Subscription | undefined
  #deliverSubject: string | undefined
  #wake: (() => void) | undefined
  #onBound: () => void = () => {}
  /** Resolves when the queue was bound for the first time. */
  readonly bound: Promise<void>

  constructor(options: WorkerQueueOptions) {
    this.#options = options
    this.bound = new Promise((resolve) => {
      this.#onBound = resolve
    })
    this.#running = this.#run()
  }

  /** Looks after the queue now: the broker was away. */
  check(): void {
    this.#wake?.()
  }

  /**
   * Requests that wait in the queue.
   * @returns undefined when that cannot be read
   */
  async waiting(): Promise<number | undefined> {
    const { broker, timeoutMs, workerId } = this.#options
    const connection = broker.connection
    if (!connection) return undefined
    try {
      const manager = await managerOf(connection, timeoutMs)
      return (await readConsumer(manager, requestStreamName, natsToken(workerId)))?.num_pending
    } catch {
      // Unreadable: that is the answer.
      return undefined
    }
  }

  /** Takes nothing more. */
  async unbind(): Promise<void> {
    this.#stop.abort(new Error('the queue was closed'))
    await this.#running
    this.#subscription?.unsubscribe()
    this.#subscription = undefined
  }

  /** Takes the consumer away, once; its front ends then know that there is no queue. */
  async delete(): Promise<void> {
    const { broker, timeoutMs, workerId, logger } = this.#options
    const connection = broker.connection
    if (!connection) return
    try {
      const manager = await managerOf(connection, timeoutMs)
      await manager.consumers.delete(requestStreamName, natsToken(workerId))
    } catch (error) {
      const fields = { workerId, error: error instanceof Error ? error.message : String(error) }
      logger.warn(fields, 'the consumer of this worker stays at the broker')
    }
  }

  async #run(): Promise<void> {
    const { clock, random, logger, workerId, broker, checkIntervalMs } = this.#options
    const stopped = this.#stop.signal
    const backoff = new Backoff({
      firstMs: Math.max(1, checkIntervalMs / 256),
      maxMs: checkIntervalMs,
      random,
    })
    let failures = 0
    while (!stopped.aborted) {
      let delayMs = checkIntervalMs
      try {
        await this.#ensure(await broker.ready(stopped))
        this.#onBound()
        failures = 0
        backoff.reset()
      } catch (error) {
        if (stopped.aborted) return
        const fields = { workerId, error: error instanceof Error ? error.message : String(error) }
        // The first failure is mostly the broker's own slowness to see a subscription.
        if (failures === 1) logger.warn(fields, 'the queue of this worker cannot be bound: trying on')
        failures += 1
        delayMs = backoff.nextDelayMs()
      }
      const waking = new AbortController()
      this.#wake = () => waking.abort()
      await sleep(clock, delayMs, AbortSignal.any([stopped, waking.signal])).catch(() => {
        // Woken or stopped: the loop's condition sees which.
      })
    }
  }

  async #ensure(connection: NatsConnection): Promise<void> {
    const { workerId, timeoutMs } = this.#options
    const manager = await managerOf(connection, timeoutMs)
    const token = natsToken(workerId)
    let info = await readConsumer(manager, requestStreamName, token)
    if (info && !info.config.deliver_subject) {
      // Somebody's pull consumer under our name: requests would wait in it for nobody.
      await manager.consumers.delete(requestStreamName, token)
      info = undefined
    }
    if (!info) {
      await ensureStream(manager, requestStream)
      info = await manager.consumers.add(requestStreamName, requestConsumer(workerId, createInbox()))
    } else if (info.push_bound && info.config.deliver_subject !== this.#deliverSubject) {
      throw new Error(`consumer is already bound: another process serves worker '${workerId}'`)
    }
    this.#bind(connection, info.config.deliver_subject ?? '')
    if (info.push_bound) return
    // Front ends are told by the broker whether anybody takes from the queue; it sees our subscription a moment later.
    await connection.flush()
    const bound = await readConsumer(manager, requestStreamName, token)
    if (!bound?.push_bound) throw new Error('consumer is not bound yet')
  }

  #bind(connection: NatsConnection, deliverSubject: string): void {
    if (this.#subscription && !this.#subscription.isClosed() && this.#deliverSubject === deliverSubject)
      return
    this.#subscription?.unsubscribe()
    this.#deliverSubject = deliverSubject
    this.#subscription = connection.subscribe(deliverSubject, {
      callback: (_error, message) => this.#options.onMessage(message),
    })
  }
}
