import { isIP } from 'node:net'
import type { LinkTarget } from './link-channel.js'

/** Where a worker learns which servers there are to join. */
export interface TargetSource {
  /**
   * The whole set each time, never empty unless the source knows that there is no server; what a later set does not name is
   * gone. Failures are the source's to log and to retry: it never throws. When it ends, its last set stays.
   */
  watch(signal: AbortSignal): AsyncIterable<readonly LinkTarget[]>
}

/** Servers that are written down once and for all. */
export class FixedTargets implements TargetSource {
  readonly #targets: readonly LinkTarget[]

  constructor(targets: readonly LinkTarget[]) {
    this.#targets = targets
  }

  async *watch(): AsyncGenerator<readonly LinkTarget[]> {
    yield this.#targets
  }
}

/** Equal for targets that are the same place. */
export function targetKey({ url, address }: LinkTarget): string {
  return address === undefined ? url : `${url} ${address}`
}

/** The name in a URL that may stand for several addresses; undefined where there is an address already. */
export function hostNameOf(url: string): string | undefined {
  const { hostname } = new URL(url)
  return hostname.startsWith('[') || isIP(hostname) ? undefined : hostname
}
