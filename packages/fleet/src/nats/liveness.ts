import type { NatsConnection } from '@nats-io/transport-node'
import type { Clock, Timer } from '../ports/clock.js'
import type { Exchange } from './exchange.js'
import { cancelSubject } from './names.js'
import { isAbsent } from './streams.js'

export interface LivenessOptions {
  readonly clock: Clock
  /** A worker whose running requests are silent for so long is asked after. */
  readonly intervalMs: number
  /** The broker while it is reached. */
  readonly connection: () => NatsConnection | undefined
}

/** The broker's word that nobody listens comes at once; longer waiting brings nothing. */
const probeTimeoutMs = 1_000

interface Watched {
  readonly exchanges: Set<Exchange>
  timer: Timer | undefined
  /** One question at a time: live workers of the reference leave it unanswered. */
  probing: Promise<void> | undefined
}

/**
 * Finds dead workers without waiting for them. A live worker, one of the reference too, listens for cancels until its last
 * request has ended; a message there that names no request changes nothing for it, and where nobody listens the broker says so
 * at once.
 */
export class Liveness {
  readonly #options: LivenessOptions
  readonly #watched = new Map<string, Watched>()

  constructor(options: LivenessOptions) {
    this.#options = options
  }

  add(workerId: string, exchange: Exchange): void {
    let watched = this.#watched.get(workerId)
    if (!watched) {
      watched = { exchanges: new Set(), timer: undefined, probing: undefined }
      this.#watched.set(workerId, watched)
      this.#arm(workerId, watched)
    }
    watched.exchanges.add(exchange)
  }

  remove(workerId: string, exchange: Exchange): void {
    const watched = this.#watched.get(workerId)
    watched?.exchanges.delete(exchange)
    if (watched?.exchanges.size !== 0) return
    watched.timer?.cancel()
    this.#watched.delete(workerId)
  }

  /** Asks now, or waits for the answer to what was asked already. */
  probe(workerId: string): Promise<void> {
    const watched = this.#watched.get(workerId)
    if (!watched) return Promise.resolve()
    watched.probing ??= this.#ask(workerId, watched).finally(() => {
      watched.probing = undefined
    })
    return watched.probing
  }

  async #ask(workerId: string, watched: Watched): Promise<void> {
    const connection = this.#options.connection()
    const asked = [...watched.exchanges]
    if (!connection || asked.length === 0) return
    const timeoutMs = Math.min(this.#options.intervalMs, probeTimeoutMs)
    if (await isAbsentWorker(connection, workerId, timeoutMs)) {
      for (const exchange of asked) exchange.lose('nobody listens at the broker for it (no responders)')
    }
  }

  #arm(workerId: string, watched: Watched): void {
    const { clock, intervalMs } = this.#options
    watched.timer = clock.setTimer(intervalMs, () => {
      this.#arm(workerId, watched)
      const nowMs = clock.now()
      const isSilent = [...watched.exchanges].some(({ heardAtMs }) => nowMs - heardAtMs >= intervalMs)
      if (isSilent) void this.probe(workerId)
    })
  }
}

/** Whether the broker says that nobody listens for that worker's cancels. Silence and failures are no such word. */
export async function isAbsentWorker(
  connection: NatsConnection,
  workerId: string,
  timeoutMs: number,
): Promise<boolean> {
  try {
    await connection.request(cancelSubject(workerId), '', { timeout: timeoutMs })
    return false
  } catch (error) {
    // A live worker does not answer: its silence ends in a timeout.
    return isAbsent(error)
  }
}
