import type { NatsConnection } from '@nats-io/transport-node'
import type { Clock } from '../ports/clock.js'
import type { Logger } from '../ports/logger.js'
import { natsToken, requestStreamName } from './names.js'
import { managerOf, readConsumer } from './streams.js'

/**
 * What a broker says of a worker's queue: `absent` where it has none, `unreadable` where nobody knows, else the requests
 * that wait or run, and whether a process is bound to it.
 */
export type QueueReading =
  | { readonly type: 'absent' }
  | { readonly type: 'unreadable' }
  | { readonly type: 'queue'; readonly backlog: number; readonly waiting: number; readonly isBound: boolean }

interface Held {
  readonly atMs: number
  readonly reading: Promise<QueueReading>
}

/** Workers whose readings are kept; older ones go first. */
const heldMax = 4096

/** Readings of the workers' queues, each kept for a moment so that a burst of requests asks once. */
export class QueueReader {
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #timeoutMs: number
  readonly #held = new Map<string, Held>()

  constructor(options: { clock: Clock; logger: Logger; timeoutMs: number }) {
    this.#clock = options.clock
    this.#logger = options.logger
    this.#timeoutMs = options.timeoutMs
  }

  /** @param maxAgeMs how old a reading may be */
  read(connection: NatsConnection, workerId: string, maxAgeMs: number): Promise<QueueReading> {
    const nowMs = this.#clock.now()
    const held = this.#held.get(workerId)
    if (held && nowMs - held.atMs < maxAgeMs) return held.reading
    const reading = this.#ask(connection, workerId)
    this.#held.delete(workerId)
    this.#held.set(workerId, { atMs: nowMs, reading })
    if (this.#held.size > heldMax) {
      for (const oldest of this.#held.keys()) {
        this.#held.delete(oldest)
        break
      }
    }
    return reading
  }

  forget(): void {
    this.#held.clear()
  }

  async #ask(connection: NatsConnection, workerId: string): Promise<QueueReading> {
    try {
      const manager = await managerOf(connection, this.#timeoutMs)
      const info = await readConsumer(manager, requestStreamName, natsToken(workerId))
      if (!info) return { type: 'absent' }
      return {
        type: 'queue',
        backlog: info.num_pending + info.num_ack_pending,
        waiting: info.num_pending,
        // A pull consumer has nobody bound; one that is asked for messages has requests waiting.
        isBound: info.config.deliver_subject ? info.push_bound === true : true,
      }
    } catch (error) {
      const fields = { workerId, error: error instanceof Error ? error.message : String(error) }
      this.#logger.debug(fields, 'the queue of a worker cannot be read')
      return { type: 'unreadable' }
    }
  }
}
