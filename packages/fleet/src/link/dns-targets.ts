import { lookup } from 'node:dns/promises'
import { type Clock, sleep } from '../ports/clock.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import { Backoff } from './backoff.js'
import type { TargetSource } from './join-targets.js'
import type { LinkTarget } from './link-channel.js'
import { untilAborted } from './until-aborted.js'

/** One address of a host name. */
export interface HostAddress {
  readonly address: string
  readonly family: number
}

/** All addresses of a host name; rejects when there are none, or nobody answers. */
export type HostResolver = (
  hostName: string,
  options: { signal: AbortSignal },
) => Promise<readonly HostAddress[]>

/** What the machine itself says: its hosts file, then DNS. */
export const systemResolver: HostResolver = (hostName) => lookup(hostName, { all: true })

export interface DnsTargetsOptions {
  readonly resolve: HostResolver
  /** Between two resolutions, ms. */
  readonly intervalMs: number
  /** For one resolution, ms. */
  readonly timeoutMs: number
  /** Pauses after resolutions that failed, ms. */
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
}

/** Every address of the name in a URL, as of a headless service, asked for again and again. */
export class DnsTargets implements TargetSource {
  readonly #url: string
  readonly #hostName: string
  readonly #options: DnsTargetsOptions

  constructor(url: string, hostName: string, options: DnsTargetsOptions) {
    this.#url = url
    this.#hostName = hostName
    this.#options = options
  }

  async *watch(signal: AbortSignal): AsyncGenerator<readonly LinkTarget[]> {
    const { clock, random, logger, intervalMs, backoff: pauses } = this.#options
    const backoff = new Backoff({ ...pauses, random })
    while (!signal.aborted) {
      let delayMs: number
      try {
        const addresses = await this.#addresses(signal)
        backoff.reset()
        // By chance up to a tenth of it less, so that the workers of a fleet do not ask in step.
        delayMs = intervalMs * (0.9 + 0.1 * random())
        yield addresses.map((address) => ({ url: this.#url, address }))
      } catch (error) {
        if (signal.aborted) return
        // What is joined stays joined: a name server that is down says nothing about the servers.
        delayMs = backoff.nextDelayMs()
        const reason = error instanceof Error ? error.message : String(error)
        logger.warn(
          { hostName: this.#hostName, reason, retryInMs: delayMs },
          'host name to join cannot be resolved',
        )
      }
      await sleep(clock, delayMs, signal).catch(() => {
        // Only an abort ends a sleep early, and the loop's condition sees it.
      })
    }
  }

  /** In order of address, each once. @throws whatever says why there are none */
  async #addresses(signal: AbortSignal): Promise<readonly string[]> {
    const { clock, resolve, timeoutMs } = this.#options
    const giveUp = new AbortController()
    const onAbort = () => giveUp.abort(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    const timer = clock.setTimer(timeoutMs, () => giveUp.abort(new Error(`no answer within ${timeoutMs} ms`)))
    try {
      const found = await untilAborted(resolve(this.#hostName, { signal: giveUp.signal }), giveUp.signal)
      const addresses = oneFamily(found)
      if (addresses.length === 0) throw new Error('it has no address')
      return addresses
    } finally {
      timer.cancel()
      signal.removeEventListener('abort', onAbort)
    }
  }
}

/** IPv4 where there is any: a host with both, as `localhost` mostly is, is one server and not two. */
function oneFamily(found: readonly HostAddress[]): string[] {
  const isAnyIpv4 = found.some(({ family }) => family === 4)
  const kept = found.filter(({ family }) => (family === 4) === isAnyIpv4)
  return [...new Set(kept.map(({ address }) => address))].sort()
}
