import type { Clock, LinkServer } from '@infera/fleet'
import { LinkDialError, type LinkDialer, MemoryLink } from '@infera/fleet/internal'
import type { FaultLine } from '../faults/fault-target.js'
import { Gate } from '../faults/held.js'

export interface NodeLineOptions {
  readonly clock: Clock
  readonly server: LinkServer
  readonly latencyMs: number
  readonly bytesPerMs: number | undefined
}

/** Everything between one place of the fleet and the server: the connections of its workers, and what may happen to them. */
export class NodeLine implements FaultLine {
  readonly #options: NodeLineOptions
  readonly #gate = new Gate()
  #links: MemoryLink[] = []
  #isRefused = false
  #latencyMs: number

  constructor(options: NodeLineOptions) {
    this.#options = options
    this.#latencyMs = options.latencyMs
  }

  /** Connections that are open at one end at least. */
  get openCount(): number {
    return this.#links.filter((link) => link.isOpen).length
  }

  /** Opens a connection for the worker of that name. */
  dialerOf(workerId: string): LinkDialer {
    return async (_target, { signal }) => {
      await this.#gate.pass(signal)
      if (this.#isRefused) throw new LinkDialError('connection refused')
      const { clock, server, bytesPerMs } = this.#options
      const link = new MemoryLink({
        clock,
        latencyMs: this.#latencyMs,
        ...(bytesPerMs === undefined ? {} : { bytesPerMs }),
      })
      this.#links = [...this.#links.filter((other) => other.isOpen), link]
      server.accept(link.server, workerId)
      return link.client
    }
  }

  partition(): void {
    this.#gate.close()
    for (const link of this.#links) link.partition()
  }

  heal(): void {
    for (const link of this.#links) link.heal()
    this.#gate.open()
  }

  cut(): void {
    for (const link of this.#links) link.cut()
  }

  refuse(isRefused: boolean): void {
    this.#isRefused = isRefused
  }

  delay(latencyMs: number | undefined): void {
    this.#latencyMs = latencyMs ?? this.#options.latencyMs
    for (const link of this.#links) link.setLatency(this.#latencyMs)
  }

  /** The process at this end is gone without a word: nothing arrives any more on the connections that it had. */
  abandon(): void {
    for (const link of this.#links) link.partition()
    this.#links = []
  }
}
