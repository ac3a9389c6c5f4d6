import { BoundedQueue } from '../bounded-queue.js'
import { TransportError, type TransportErrorCode } from '../errors.js'
import { endToEndHeaders } from '../headers.js'
import type { RequestLimits } from '../http/request-limits.js'
import type { TransportResponse } from '../ports/request-transport.js'
import type { Reply } from './frames.js'

type Frame = Extract<Reply, { bytes: Uint8Array }>

export interface ExchangeOptions {
  readonly workerId: string
  readonly inbox: string
  readonly limits: RequestLimits
  /** Whether the worker relays the answer as it comes; else it is one piece, whose status is known at its end. */
  readonly isStream: boolean
  /** Most bytes of an answer held for a reader that is slower than its worker. */
  readonly bufferBytesMax: number
  /** Called once: no frame of this exchange is wanted any more. */
  readonly onOver: (cancelWorker: boolean) => void
}

/** What a body of server-sent events may begin with; engines' error bodies begin otherwise. */
const eventStart = /^(?:data|event|id|retry)?:/

/**
 * The front end's end of one request: turns reply frames into a response. Workers of the reference say their status only at
 * the end; until then the answer is held back, unless its first bytes show that it is a stream of events, which no engine sends
 * with another status than 200.
 */
export class Exchange {
  readonly #options: ExchangeOptions
  readonly #queue: BoundedQueue<Uint8Array>
  #held: Uint8Array[] = []
  #heldBytes = 0
  #nextSequence = 0
  #status: number | undefined
  #hasBegun = false
  #isOver = false
  #isWanted = true
  #heardAtMs: number
  #arrivedParts = 0
  #partWaiters: (() => void)[] = []
  #resolve: (response: TransportResponse) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  /** Status, headers and body, once known. */
  readonly response: Promise<TransportResponse>

  constructor(options: ExchangeOptions, nowMs: number) {
    this.#options = options
    this.#heardAtMs = nowMs
    this.#queue = new BoundedQueue(options.bufferBytesMax, {
      onReturn: () => {
        this.#isWanted = false
        this.#end(true)
      },
    })
    this.response = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    // Who waits for it may not have come yet.
    this.response.catch(() => {})
    options.limits.signal.addEventListener('abort', () => this.#fail(options.limits.signal.reason, true), {
      once: true,
    })
  }

  get inbox(): string {
    return this.#options.inbox
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** When the worker was last heard of in this exchange; its start before that. */
  get heardAtMs(): number {
    return this.#heardAtMs
  }

  /** Whether the worker has said anything. */
  get isAnswered(): boolean {
    return this.#hasBegun
  }

  accept(reply: Frame, nowMs: number): void {
    if (this.#isOver) return
    this.#hasBegun = true
    this.#heardAtMs = nowMs
    // While the reader is busy, or has bytes to read, silence is nobody's fault.
    if (this.#status === undefined || this.#queue.isAwaited) this.#options.limits.touch()
    if (reply.type === 'hb') return
    if (reply.type === 'ack') {
      this.#arrivedParts = Math.max(this.#arrivedParts, reply.part ?? 0)
      this.#wakePartWaiters()
      return
    }
    if (reply.sequence !== undefined) {
      if (reply.sequence !== this.#nextSequence) {
        const { workerId } = this.#options
        const what = `frame ${reply.sequence} after ${this.#nextSequence - 1}: frames were lost on the way`
        this.#failWith('INFERA_FLEET_BROKEN', `response of worker '${workerId}' broke: ${what}`, true)
        return
      }
      this.#nextSequence += 1
    }
    if (reply.type === 'data') this.#acceptData(reply)
    else if (reply.type === 'done') this.#acceptDone(reply.status ?? 200)
    else this.#acceptError(reply)
  }

  /** Nobody listens at the worker, or the way to it is gone. */
  lose(reason: string): void {
    const { workerId } = this.#options
    if (this.#status === undefined) {
      this.#failWith('INFERA_FLEET_UNREACHABLE', `worker '${workerId}' gave no answer: ${reason}`, true)
    } else {
      this.#failWith('INFERA_FLEET_BROKEN', `response of worker '${workerId}' broke: ${reason}`, true)
    }
  }

  /** Nothing was sent, and nothing is to come. */
  drop(): void {
    this.#end(false)
  }

  /** Waits until the worker has so many pieces of the request, or the exchange is over. */
  async partsArrived(count: number): Promise<void> {
    while (!this.#isOver && this.#arrivedParts < count) {
      await new Promise<void>((resolve) => this.#partWaiters.push(resolve))
    }
  }

  #acceptData(reply: Frame): void {
    if (this.#status === undefined && reply.status !== undefined) {
      this.#begin(reply.status, reply.headers)
    }
    if (reply.bytes.byteLength === 0) return
    if (this.#status !== undefined) {
      this.#push(reply.bytes)
      return
    }
    this.#held.push(reply.bytes)
    this.#heldBytes += reply.bytes.byteLength
    if (
      this.#options.isStream &&
      eventStart.test(Buffer.from(this.#held[0] ?? []).toString('latin1', 0, 8))
    ) {
      this.#begin(200)
    } else if (this.#heldBytes > this.#options.bufferBytesMax) this.#overflow()
  }

  #acceptDone(status: number): void {
    if (this.#status === undefined) this.#begin(status)
    else if (status !== this.#status) {
      const { workerId } = this.#options
      const what = `it began with ${this.#status} and ended with ${status}`
      this.#failWith('INFERA_FLEET_BROKEN', `response of worker '${workerId}' broke: ${what}`, false)
      return
    }
    this.#queue.end()
    this.#end(false)
  }

  #acceptError(reply: Frame): void {
    const text = Buffer.from(reply.bytes).toString('utf8').slice(0, 500)
    const status = reply.status === undefined ? '' : ` (status ${reply.status})`
    const { workerId } = this.#options
    this.#failWith('INFERA_FLEET_WORKER_FAILED', `worker '${workerId}' failed: ${text}${status}`, false)
  }

  #begin(status: number, headers?: Readonly<Record<string, string>>): void {
    this.#status = status
    const kind = this.#options.isStream && status < 400 ? 'text/event-stream' : 'application/json'
    this.#resolve({
      status,
      headers: headers ? endToEndHeaders(headers) : { 'content-type': kind },
      body: new Body(this.#queue, this.#options.limits, () => this.#isOver),
    })
    this.#options.limits.pause()
    const held = this.#held
    this.#held = []
    this.#heldBytes = 0
    for (const bytes of held) this.#push(bytes)
  }

  #push(bytes: Uint8Array): void {
    // A small view would keep alive the whole chunk of the socket that it lies in, so that the bound would bound nothing.
    const keepsMuchAlive = !this.#queue.isAwaited && bytes.byteLength * 2 < bytes.buffer.byteLength
    const kept = keepsMuchAlive ? new Uint8Array(bytes) : bytes
    if (!this.#queue.push(kept, bytes.byteLength)) this.#overflow()
  }

  #overflow(): void {
    const { workerId, bufferBytesMax } = this.#options
    const what = `its reader is more than ${bufferBytesMax} bytes behind; raise bufferBytesMax`
    this.#failWith('INFERA_FLEET_BROKEN', `response of worker '${workerId}' broke: ${what}`, true)
  }

  #failWith(code: TransportErrorCode, message: string, cancelWorker: boolean): void {
    this.#fail(new TransportError(code, this.#options.workerId, message), cancelWorker)
  }

  #fail(error: unknown, cancelWorker: boolean): void {
    if (this.#isOver) return
    this.#reject(error)
    // A caller that aborts wants nothing any more; else what had arrived is read first.
    if (this.#options.limits.signal.aborted) this.#queue.clear()
    if (this.#isWanted) this.#queue.fail(error)
    this.#end(cancelWorker)
  }

  #end(cancelWorker: boolean): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#held = []
    this.#options.limits.end()
    this.#wakePartWaiters()
    this.#options.onOver(cancelWorker)
  }

  #wakePartWaiters(): void {
    const waiters = this.#partWaiters
    this.#partWaiters = []
    for (const wake of waiters) wake()
  }
}

/** Counts a worker's silence only while its reader waits. */
class Body implements AsyncIterableIterator<Uint8Array> {
  readonly #queue: BoundedQueue<Uint8Array>
  readonly #limits: RequestLimits
  readonly #isOver: () => boolean

  constructor(queue: BoundedQueue<Uint8Array>, limits: RequestLimits, isOver: () => boolean) {
    this.#queue = queue
    this.#limits = limits
    this.#isOver = isOver
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    if (!this.#isOver()) this.#limits.touch()
    const step = await this.#queue.next()
    if (!this.#isOver()) this.#limits.pause()
    return step
  }

  return(): Promise<IteratorResult<Uint8Array>> {
    return this.#queue.return()
  }

  [Symbol.asyncIterator](): this {
    return this
  }
}
