import type { Clock, Timer } from '../ports/clock.js'

interface Arriving {
  readonly parts: (Uint8Array | undefined)[]
  readonly count: number
  headBytes: number | undefined
  arrived: number
  sizeBytes: number
  timer: Timer | undefined
}

export interface RequestPartsOptions {
  /** Largest request. */
  readonly sizeBytesMax: number
  /** All those together that are not whole yet. */
  readonly heldBytesMax: number
  /** A request whose next piece does not come within this is dropped. */
  readonly timeoutMs: number
  readonly clock: Clock
}

export type PartResult =
  | { readonly type: 'more'; readonly arrived: number }
  | { readonly type: 'whole'; readonly payload: Uint8Array; readonly headBytes: number | undefined }
  | { readonly type: 'refused'; readonly reason: string }

/** Most pieces of one request; what claims more is not listened to. */
const partsMax = 65_536

/** Puts requests together that came in pieces, each under the inbox that it is to be answered on. */
export class RequestParts {
  readonly #options: RequestPartsOptions
  readonly #arriving = new Map<string, Arriving>()
  #heldBytes = 0

  constructor(options: RequestPartsOptions) {
    this.#options = options
  }

  get heldBytes(): number {
    return this.#heldBytes
  }

  /** @param part `<i>/<n>`, i from 1 to n, in order */
  add(inbox: string, part: string, bytes: Uint8Array, headBytes: number | undefined): PartResult {
    const match = /^(\d{1,5})\/(\d{1,5})$/.exec(part)
    const index = Number(match?.[1])
    const count = Number(match?.[2])
    if (!match || index < 1 || index > count || count > partsMax) {
      return { type: 'refused', reason: 'piece of a request has an unreadable number' }
    }
    let request = this.#arriving.get(inbox)
    if (!request) {
      if (index !== 1) return { type: 'refused', reason: 'request arrived without its first piece' }
      request = { parts: [], count, headBytes, arrived: 0, sizeBytes: 0, timer: undefined }
      this.#arriving.set(inbox, request)
    }
    if (index !== request.arrived + 1 || count !== request.count) {
      this.drop(inbox)
      return { type: 'refused', reason: 'a piece of the request was lost' }
    }
    const { sizeBytesMax, heldBytesMax, clock, timeoutMs } = this.#options
    if (request.sizeBytes + bytes.byteLength > sizeBytesMax) {
      this.drop(inbox)
      return {
        type: 'refused',
        reason: `request is larger than ${sizeBytesMax} bytes; raise requestBytesMax`,
      }
    }
    if (this.#heldBytes + bytes.byteLength > heldBytesMax) {
      this.drop(inbox)
      return {
        type: 'refused',
        reason: `requests that arrive are larger than ${heldBytesMax} bytes together`,
      }
    }
    request.parts.push(bytes)
    request.arrived += 1
    request.sizeBytes += bytes.byteLength
    this.#heldBytes += bytes.byteLength
    request.timer?.cancel()
    if (request.arrived < count) {
      request.timer = clock.setTimer(timeoutMs, () => this.drop(inbox))
      return { type: 'more', arrived: request.arrived }
    }
    const payload = Buffer.concat(request.parts.filter((one) => one !== undefined))
    this.drop(inbox)
    return { type: 'whole', payload, headBytes: request.headBytes }
  }

  drop(inbox: string): void {
    const request = this.#arriving.get(inbox)
    if (!request) return
    request.timer?.cancel()
    this.#arriving.delete(inbox)
    this.#heldBytes -= request.sizeBytes
  }

  clear(): void {
    for (const inbox of [...this.#arriving.keys()]) this.drop(inbox)
  }
}
