import { LinkProtocolError } from '../errors.js'
import type { TransportRequest } from '../ports/request-transport.js'
import type { RequestHead } from './frames.js'

interface Arriving {
  readonly head: RequestHead
  body: Uint8Array | undefined
  arrivedBytes: number
}

export interface RequestIntakeOptions {
  readonly requestBodyBytesMax: number
  readonly requestBodiesBytesMax: number
  /** Room for so many bytes is free again. */
  readonly onFreed: (bytes: number) => void
}

/**
 * Requests that have not arrived whole yet. Each takes the room of its whole body from its head on, as its server reckons too;
 * one that does not fit was sent by a server that does not keep to what it was told.
 */
export class RequestIntake {
  readonly #options: RequestIntakeOptions
  readonly #arriving = new Map<number, Arriving>()
  #reservedBytes = 0

  constructor(options: RequestIntakeOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#arriving.size
  }

  get reservedBytes(): number {
    return this.#reservedBytes
  }

  has(streamId: number): boolean {
    return this.#arriving.has(streamId)
  }

  /** @throws LinkProtocolError for a body that this worker has no room for */
  begin(streamId: number, head: RequestHead): void {
    this.checkRoom(head.bodyBytes)
    this.#reservedBytes += head.bodyBytes
    this.#arriving.set(streamId, { head, body: undefined, arrivedBytes: 0 })
  }

  /** @throws LinkProtocolError for a body that this worker has no room for */
  checkRoom(bodyBytes: number): void {
    const { requestBodyBytesMax, requestBodiesBytesMax } = this.#options
    if (bodyBytes > requestBodyBytesMax) {
      throw new LinkProtocolError(`request body of ${bodyBytes} bytes exceeds ${requestBodyBytesMax}`)
    }
    if (this.#reservedBytes + bodyBytes > requestBodiesBytesMax) {
      throw new LinkProtocolError(
        `request bodies of ${this.#reservedBytes + bodyBytes} bytes exceed ${requestBodiesBytesMax}`,
      )
    }
  }

  /** @throws LinkProtocolError for more than the head said */
  add(streamId: number, bytes: Uint8Array): void {
    const request = this.#arriving.get(streamId)
    if (!request) return
    const { bodyBytes } = request.head
    const arrivedBytes = request.arrivedBytes + bytes.byteLength
    if (arrivedBytes > bodyBytes) {
      throw new LinkProtocolError(`request body of more than the ${bodyBytes} bytes that its head states`)
    }
    // Its room is reserved already. Made with the first bytes, so that heads alone cost nothing.
    request.body ??= Buffer.allocUnsafeSlow(bodyBytes)
    request.body.set(bytes, request.arrivedBytes)
    request.arrivedBytes = arrivedBytes
  }

  /**
   * @returns the whole request; undefined for a stream that is not arriving
   * @throws LinkProtocolError for less than the head said
   */
  complete(streamId: number): TransportRequest | undefined {
    const request = this.#arriving.get(streamId)
    if (!request) return undefined
    const { method, path, headers, bodyBytes } = request.head
    if (request.arrivedBytes < bodyBytes) {
      throw new LinkProtocolError(
        `request body of ${request.arrivedBytes} bytes where its head states ${bodyBytes}`,
      )
    }
    this.drop(streamId)
    return { method, path, headers, body: request.body ?? new Uint8Array() }
  }

  drop(streamId: number): void {
    const request = this.#arriving.get(streamId)
    if (!request) return
    this.#arriving.delete(streamId)
    const { bodyBytes } = request.head
    this.#reservedBytes -= bodyBytes
    if (bodyBytes > 0) this.#options.onFreed(bodyBytes)
  }
}
