import type { AddressInfo } from 'node:net'
import { connect, createServer, type Server, type Socket } from 'node:net'

/** A TCP proxy between a worker and its server, on which what happens to lines can happen. */
export class ChaosProxy {
  readonly #server: Server
  readonly #target: { readonly host: string; readonly port: number }
  readonly #sockets = new Set<Socket>()
  #isPartitioned = false
  #delayMs = 0

  private constructor(targetUrl: string) {
    const { hostname, port } = new URL(targetUrl)
    this.#target = { host: hostname, port: Number(port) }
    this.#server = createServer((socket) => this.#join(socket))
  }

  static async start(targetUrl: string): Promise<ChaosProxy> {
    const proxy = new ChaosProxy(targetUrl)
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve))
    return proxy
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Bytes stay where they are, in both directions. */
  partition(): void {
    this.#isPartitioned = true
    for (const socket of this.#sockets) socket.pause()
  }

  heal(): void {
    this.#isPartitioned = false
    for (const socket of this.#sockets) socket.resume()
  }

  /** Resets every connection. */
  cut(): void {
    for (const socket of [...this.#sockets]) socket.resetAndDestroy()
  }

  /** What arrives is passed on that much later, in order. */
  delay(delayMs: number): void {
    this.#delayMs = delayMs
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of [...this.#sockets]) socket.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  #join(near: Socket): void {
    const far = connect(this.#target)
    this.#pipe(near, far)
    this.#pipe(far, near)
  }

  #pipe(from: Socket, to: Socket): void {
    this.#sockets.add(from)
    // A chain of waits keeps the order when the delay changes.
    let passed: Promise<unknown> = Promise.resolve()
    from.on('data', (bytes) => {
      const delayMs = this.#delayMs
      passed = passed.then(async () => {
        if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs))
        if (!to.destroyed) to.write(bytes)
      })
    })
    from.on('end', () => void passed.then(() => to.end()))
    // A broken end breaks the other one; `close` follows in any case.
    from.on('error', () => to.destroy())
    from.on('close', () => {
      this.#sockets.delete(from)
      void passed.then(() => to.destroy())
    })
    if (this.#isPartitioned) from.pause()
  }
}
