import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

/** A wire that can be cut: connections through it are passed on, held without a word, or broken. */
export class TcpProxy {
  readonly #server: Server
  readonly #pairs = new Set<readonly [Socket, Socket]>()
  #isHeld = false
  #isCut = false
  #refused = 0

  private constructor(server: Server) {
    this.#server = server
  }

  /** @param target port on loopback */
  static async start(target: number): Promise<TcpProxy> {
    const proxy: TcpProxy = new TcpProxy(createServer((near) => proxy.#accept(near, target)))
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Connections that were refused. */
  get refused(): number {
    return this.#refused
  }

  /** Breaks what is open and refuses what comes, until `mend`. */
  cut(): void {
    this.#isCut = true
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy()
  }

  /** Passes nothing on, and breaks nothing: as a cable that was pulled. */
  hold(): void {
    this.#isHeld = true
    for (const pair of this.#pairs) for (const socket of pair) socket.pause()
  }

  mend(): void {
    this.#isCut = false
    this.#isHeld = false
    for (const pair of this.#pairs) for (const socket of pair) socket.resume()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #accept(near: Socket, target: number): void {
    if (this.#isCut) {
      this.#refused += 1
      near.destroy()
      return
    }
    const far = connect(target, '127.0.0.1')
    const pair = [near, far] as const
    this.#pairs.add(pair)
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('data', (bytes) => to.write(bytes))
      from.on('end', () => to.end())
      from.on('error', () => to.destroy())
      from.on('close', () => {
        to.destroy()
        this.#pairs.delete(pair)
      })
      if (this.#isHeld) from.pause()
    }
  }
}
