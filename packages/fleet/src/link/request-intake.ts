import type { TransportRequest } from '../ports/request-transport.js'
import type { RequestHead } from './frames.js'

interface Arriving {
  readonly head: RequestHead
  readonly pieces: Uint8Array[]
  sizeBytes: number
}

export type IntakeFault = 'requestTooLarge' | 'tooManyBytes'

/** Requests that have not arrived whole yet. Bounded by the size of each and of all together. */
export class RequestIntake {
  readonly #requestBodyBytesMax: number
  readonly #requestBodiesBytesMax: number
  readonly #arriving = new Map<number, Arriving>()
  #heldBytes = 0

  constructor(options: { requestBodyBytesMax: number; requestBodiesBytesMax: number }) {
    this.#requestBodyBytesMax = options.requestBodyBytesMax
    this.#requestBodiesBytesMax = options.requestBodiesBytesMax
  }

  get size(): number {
    return this.#arriving.size
  }

  get heldBytes(): number {
    return this.#heldBytes
  }

  has(streamId: number): boolean {
    return this.#arriving.has(streamId)
  }

  begin(streamId: number, head: RequestHead): void {
    this.#arriving.set(streamId, { head, pieces: [], sizeBytes: 0 })
  }

  /** @returns why the request cannot be taken; it is dropped then */
  add(streamId: number, bytes: Uint8Array): IntakeFault | undefined {
    const request = this.#arriving.get(streamId)
    if (!request) return undefined
    const isTooLarge = request.sizeBytes + bytes.byteLength > this.#requestBodyBytesMax
    const areTooMany = this.#heldBytes + bytes.byteLength > this.#requestBodiesBytesMax
    if (isTooLarge || areTooMany) {
      this.drop(streamId)
      return isTooLarge ? 'requestTooLarge' : 'tooManyBytes'
    }
    request.pieces.push(bytes)
    request.sizeBytes += bytes.byteLength
    this.#heldBytes += bytes.byteLength
    return undefined
  }

  /** @returns the whole request; undefined for a stream that is not arriving */
  complete(streamId: number): TransportRequest | undefined {
    const request = this.#arriving.get(streamId)
    if (!request) return undefined
    this.drop(streamId)
    const { method, path, headers } = request.head
    return { method, path, headers, body: Buffer.concat(request.pieces, request.sizeBytes) }
  }

  drop(streamId: number): void {
    const request = this.#arriving.get(streamId)
    if (!request) return
    this.#arriving.delete(streamId)
    this.#heldBytes -= request.sizeBytes
  }
}
