import { type Clock, sleep } from '../ports/clock.js'
import type { Discovery, FleetChange } from '../ports/discovery.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import type { ServerRecord } from '../records/server-record.js'
import { Backoff } from './backoff.js'
import type { TargetSource } from './join-targets.js'
import { joinUrl } from './join-url.js'
import type { LinkTarget } from './link-channel.js'

export interface DiscoveryTargetsOptions {
  /** Pauses after a watch that failed, ms. */
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
}

/** The servers that announce themselves in a registry. */
export class DiscoveryTargets implements TargetSource {
  readonly #discovery: Discovery
  readonly #options: DiscoveryTargetsOptions
  /** By server id; undefined for a server whose URL cannot be joined. */
  readonly #targets = new Map<string, LinkTarget | undefined>()

  constructor(discovery: Discovery, options: DiscoveryTargetsOptions) {
    this.#discovery = discovery
    this.#options = options
  }

  async *watch(signal: AbortSignal): AsyncGenerator<readonly LinkTarget[]> {
    const { clock, random, logger, backoff: pauses } = this.#options
    const backoff = new Backoff({ ...pauses, random })
    while (!signal.aborted) {
      try {
        for await (const change of this.#discovery.watch({ signal })) {
          backoff.reset()
          if (this.#apply(change)) yield [...this.#targets.values()].filter((target) => target !== undefined)
        }
        // Closed, by whoever owns it, or left by us: there is nothing more to learn, and what is joined stays joined.
        return
      } catch (error) {
        if (signal.aborted) return
        const retryInMs = backoff.nextDelayMs()
        const reason = error instanceof Error ? error.message : String(error)
        logger.warn(
          { discovery: this.#discovery.kind, reason, retryInMs },
          'servers to join cannot be watched',
        )
        await sleep(clock, retryInMs, signal).catch(() => {
          // Only an abort ends a sleep early, and the loop's condition sees it.
        })
      }
    }
  }

  /** @returns whether it was about servers */
  #apply(change: FleetChange): boolean {
    if (change.type === 'snapshot') {
      this.#targets.clear()
      for (const entry of change.entries) if (entry.kind === 'server') this.#put(entry.record)
      return true
    }
    if (change.type === 'entryRemoved') return change.kind === 'server' && this.#targets.delete(change.id)
    if (change.entry.kind !== 'server') return false
    this.#put(change.entry.record)
    return true
  }

  #put({ server_id: serverId, url }: ServerRecord): void {
    try {
      this.#targets.set(serverId, { url: joinUrl(url) })
    } catch (error) {
      this.#targets.set(serverId, undefined)
      const reason = error instanceof Error ? error.message : String(error)
      this.#options.logger.warn({ serverId, reason }, 'server announces a url that cannot be joined')
    }
  }
}
