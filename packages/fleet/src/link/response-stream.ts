import { BoundedQueue } from '../bounded-queue.js'
import { LinkProtocolError, TransportError, type TransportErrorCode } from '../errors.js'
import { endToEndHeaders } from '../headers.js'
import type { TransportResponse } from '../ports/request-transport.js'
import type { ResponseHead, StreamError } from './frames.js'

/** Charged for each held piece on top of its bytes, so that many tiny pieces count as what they cost. */
const pieceOverheadBytes = 64

type State = 'awaitingHead' | 'streaming' | 'over'

/**
 * The server's end of one request: turns the worker's frames into a response and its body. Moves no bytes itself; `onOver`
 * says, once, that the stream has ended, and whether the worker is to be told.
 */
export class ResponseStream {
  readonly #workerId: string
  readonly #bufferBytesMax: number
  readonly #onOver: (cancelWorker: boolean) => void
  readonly #body: BoundedQueue<Uint8Array>
  #state: State = 'awaitingHead'
  #resolve: (response: TransportResponse) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  /** Status, headers and body, once the worker sent them. */
  readonly response: Promise<TransportResponse>

  constructor(options: {
    workerId: string
    bufferBytesMax: number
    onOver: (cancelWorker: boolean) => void
  }) {
    this.#workerId = options.workerId
    this.#bufferBytesMax = options.bufferBytesMax
    this.#onOver = options.onOver
    this.#body = new BoundedQueue(options.bufferBytesMax, () => this.#end(true))
    this.response = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  get isOver(): boolean {
    return this.#state === 'over'
  }

  /** @throws LinkProtocolError for a second head */
  acceptHead(head: ResponseHead): void {
    if (this.#state === 'over') return
    if (this.#state !== 'awaitingHead') throw new LinkProtocolError('second response head on one stream')
    this.#state = 'streaming'
    this.#resolve({ status: head.status, headers: endToEndHeaders(head.headers), body: this.#body })
  }

  /** @throws LinkProtocolError before the head */
  acceptData(bytes: Uint8Array): void {
    if (this.#state === 'over') return
    if (this.#state === 'awaitingHead') throw new LinkProtocolError('response data before its head')
    // A small view would keep alive the whole chunk of the socket that it lies in, so that the bound would bound nothing.
    const own = bytes.byteLength * 4 < bytes.buffer.byteLength ? Uint8Array.from(bytes) : bytes
    if (this.#body.push(own, own.byteLength + pieceOverheadBytes)) return
    this.#body.clear()
    this.#fail(
      'INFERA_FLEET_SLOW_CONSUMER',
      `reader of worker '${this.#workerId}' fell more than ${this.#bufferBytesMax} bytes behind; read faster or raise limits.streamBufferBytesMax`,
      true,
    )
  }

  /** @throws LinkProtocolError before the head */
  acceptEnd(): void {
    if (this.#state === 'over') return
    if (this.#state === 'awaitingHead') throw new LinkProtocolError('response end before its head')
    this.#body.end()
    this.#end(false)
  }

  acceptError(error: StreamError): void {
    this.#fail(
      'INFERA_FLEET_WORKER_FAILED',
      `worker '${this.#workerId}' failed: ${error.message} (${error.code})`,
      false,
    )
  }

  /** The connection is gone. */
  lose(reason: string): void {
    if (this.#state === 'awaitingHead') {
      this.#fail('INFERA_FLEET_UNREACHABLE', `worker '${this.#workerId}' gave no answer: ${reason}`, false)
    } else {
      this.#fail('INFERA_FLEET_BROKEN', `response of worker '${this.#workerId}' broke: ${reason}`, false)
    }
  }

  /** The caller does not want it any more; who still reads gets `reason`. */
  abort(reason: unknown): void {
    if (this.#state === 'over') return
    this.#reject(reason)
    this.#body.clear()
    this.#body.fail(reason)
    this.#end(true)
  }

  #fail(code: TransportErrorCode, message: string, cancelWorker: boolean): void {
    if (this.#state === 'over') return
    const error = new TransportError(code, this.#workerId, message)
    this.#reject(error)
    this.#body.fail(error)
    this.#end(cancelWorker)
  }

  #end(cancelWorker: boolean): void {
    if (this.#state === 'over') return
    this.#state = 'over'
    this.#onOver(cancelWorker)
  }
}
