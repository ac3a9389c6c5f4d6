import type { Etcd3 } from 'etcd3'
import type { Clock } from '../ports/clock.js'

type Stream = Awaited<ReturnType<Etcd3['leaseClient']['leaseKeepAlive']>>

interface Waiter {
  resolve(ttlSeconds: number): void
  reject(error: unknown): void
}

/** Keep-alives of any number of leases over one stream, which is opened again when it has broken. */
export class LeaseKeeper {
  readonly #client: () => Etcd3
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #waiters = new Map<string, Waiter[]>()
  #stream: Promise<Stream> | undefined
  /** The one that answers now; what earlier ones still say has no meaning. */
  #current: Stream | undefined

  constructor(options: { client: () => Etcd3; clock: Clock; timeoutMs: number }) {
    this.#client = options.client
    this.#clock = options.clock
    this.#timeoutMs = options.timeoutMs
  }

  /**
   * Extends a lease.
   * @returns its time to live, seconds; 0 when it is gone
   * @throws when etcd gives no answer
   */
  async keepAlive(leaseId: string): Promise<number> {
    this.#stream ??= this.#open()
    const stream = await this.#stream
    if (this.#current !== stream) throw new Error('the stream of keep-alives broke before it was used')
    return new Promise((resolve, reject) => {
      const timer = this.#clock.setTimer(this.#timeoutMs, () => {
        // A stream that does not answer one is no use to the others.
        this.#break(stream, new Error(`no answer of etcd within ${this.#timeoutMs} ms`))
      })
      const waiter: Waiter = {
        resolve: (ttl) => {
          timer.cancel()
          resolve(ttl)
        },
        reject: (error) => {
          timer.cancel()
          reject(error)
        },
      }
      this.#waiters.set(leaseId, [...(this.#waiters.get(leaseId) ?? []), waiter])
      stream.write({ ID: leaseId })
    })
  }

  async close(): Promise<void> {
    const stream = await this.#stream?.catch(() => undefined)
    if (stream) this.#break(stream, new Error('discovery was closed'))
  }

  async #open(): Promise<Stream> {
    try {
      const stream = await this.#client().leaseClient.leaseKeepAlive()
      this.#current = stream
      stream.on('data', ({ ID, TTL }: { ID: string; TTL?: string | number }) => {
        if (this.#current !== stream) return
        const [first, ...rest] = this.#waiters.get(String(ID)) ?? []
        if (rest.length > 0) this.#waiters.set(String(ID), rest)
        else this.#waiters.delete(String(ID))
        first?.resolve(Math.max(0, Number(TTL ?? 0)))
      })
      stream.on('error', (error: unknown) => this.#break(stream, error))
      stream.on('end', () => this.#break(stream, new Error('etcd ended the stream of keep-alives')))
      return stream
    } catch (error) {
      this.#stream = undefined
      throw error
    }
  }

  #break(stream: Stream, error: unknown): void {
    // A stream that was cancelled says so later, when another one may have taken its place.
    if (this.#current !== stream) return
    this.#current = undefined
    this.#stream = undefined
    const waiting = [...this.#waiters.values()].flat()
    this.#waiters.clear()
    stream.cancel()
    for (const { reject } of waiting) reject(error)
  }
}
