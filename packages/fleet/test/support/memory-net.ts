import { EmbeddedDiscovery, LinkServer, type LinkServerOptions } from '../../src/index.js'
import { LinkDialError, type LinkDialer } from '../../src/link/link-channel.js'
import { MemoryLink } from '../../src/link/memory-link.js'
import type { VirtualClock } from '../../src/virtual-clock.js'
import { serverRecord } from './records.js'

/** Servers at addresses in memory, and the connections to them. */
export class MemoryNet {
  readonly #clock: VirtualClock
  readonly #servers = new Map<string, LinkServer>()
  readonly #links: { readonly address: string; readonly link: MemoryLink }[] = []
  /** Addresses that were dialed, in order. */
  readonly dialed: string[] = []

  constructor(clock: VirtualClock) {
    this.#clock = clock
  }

  /** Takes an address, or the host of a URL where no address is given. */
  readonly dial: LinkDialer = async ({ url, address = new URL(url).hostname }) => {
    this.dialed.push(address)
    const server = this.#servers.get(address)
    if (!server) throw new LinkDialError(`nothing listens on ${address}`)
    const link = new MemoryLink({ clock: this.#clock, latencyMs: 1 })
    if (!server.accept(link.server)) throw new LinkDialError('not taken')
    this.#links.push({ address, link })
    return link.client
  }

  /** A new server, in the place of whatever was at these addresses. */
  serve(
    serverId: string,
    addresses: readonly string[],
    options: Partial<LinkServerOptions> = {},
  ): LinkServer {
    const server = new LinkServer({
      discovery: new EmbeddedDiscovery(),
      serverRecord: serverRecord(serverId),
      clock: this.#clock,
      ...options,
    })
    for (const address of addresses) this.#servers.set(address, server)
    return server
  }

  /** Nothing listens there any more, and every connection to it is cut. */
  stop(address: string): void {
    this.#servers.delete(address)
    this.cut(address)
  }

  cut(address: string): void {
    for (const { link, address: of } of this.#links) if (of === address) link.cut()
  }

  openLinks(address: string): number {
    return this.#links.filter(({ link, address: of }) => of === address && link.isOpen).length
  }
}
