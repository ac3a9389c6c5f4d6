import { BoundedQueue } from '../bounded-queue.js'
import { LinkProtocolError, TransportError, type TransportErrorCode } from '../errors.js'
import { endToEndHeaders } from '../headers.js'
import type { TransportResponse } from '../ports/request-transport.js'
import type { CreditWindow } from './credit-window.js'
import type { ResponseHead, StreamError } from './frames.js'
import { frameCostBytes } from './limits.js'

type State = 'awaitingHead' | 'streaming' | 'over'

/**
 * The server's end of one request: turns the worker's frames into a response and its body. What its reader has not taken is
 * bounded by the credit of its window, which a worker may not exceed. Moves no bytes itself; `onOver` says, once, that the
 * stream has ended, and whether the worker is to be told.
 */
export class ResponseStream {
  readonly #workerId: string
  readonly #window: CreditWindow
  readonly #onOver: (cancelWorker: boolean) => void
  readonly #body: BoundedQueue<Uint8Array>
  #state: State = 'awaitingHead'
  #resolve: (response: TransportResponse) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  /** Status, headers and body, once the worker sent them. */
  readonly response: Promise<TransportResponse>

  constructor(options: {
    workerId: string
    window: CreditWindow
    onOver: (cancelWorker: boolean) => void
  }) {
    this.#workerId = options.workerId
    this.#window = options.window
    this.#onOver = options.onOver
    // The window bounds it.
    this.#body = new BoundedQueue(Number.POSITIVE_INFINITY, {
      onReturn: () => this.#end(true),
      onRelease: (costBytes) => this.#window.release(costBytes),
    })
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

  /** @throws LinkProtocolError before the head, and beyond the credit */
  acceptData(bytes: Uint8Array): void {
    if (this.#state === 'over') return
    if (this.#state === 'awaitingHead') throw new LinkProtocolError('response data before its head')
    const costBytes = bytes.byteLength + frameCostBytes
    this.#window.receive(costBytes)
    // A small view would keep alive the whole chunk of the socket that it lies in, so that the bound would bound nothing.
    const keepsMuchAlive = !this.#body.isAwaited && bytes.byteLength * 2 < bytes.buffer.byteLength
    this.#body.push(keepsMuchAlive ? new Uint8Array(bytes) : bytes, costBytes)
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
    // Ended first, so that what is dropped earns the worker no credit.
    this.#window.end()
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
    this.#window.end()
    this.#onOver(cancelWorker)
  }
}
