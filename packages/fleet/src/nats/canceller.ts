import type { NatsConnection } from '@nats-io/transport-node'
import type { Clock, Timer } from '../ports/clock.js'
import { cancelSubject } from './names.js'

/** As in the reference: a cancel may meet a worker in the moment before it knows the request. */
const repeats = 3

/** Tells workers that nobody waits for a request any more, three times each. Best effort: nobody confirms it. */
export class Canceller {
  readonly #clock: Clock
  readonly #intervalMs: number
  readonly #connection: () => NatsConnection | undefined
  readonly #timers = new Set<Timer>()

  constructor(options: {
    clock: Clock
    intervalMs: number
    connection: () => NatsConnection | undefined
  }) {
    this.#clock = options.clock
    this.#intervalMs = options.intervalMs
    this.#connection = options.connection
  }

  cancel(workerId: string, inbox: string): void {
    this.#say(workerId, inbox, repeats)
  }

  close(): void {
    for (const timer of this.#timers) timer.cancel()
    this.#timers.clear()
  }

  #say(workerId: string, inbox: string, timesLeft: number): void {
    this.#connection()?.publish(cancelSubject(workerId), inbox)
    if (timesLeft <= 1) return
    const timer = this.#clock.setTimer(this.#intervalMs, () => {
      this.#timers.delete(timer)
      this.#say(workerId, inbox, timesLeft - 1)
    })
    this.#timers.add(timer)
  }
}
