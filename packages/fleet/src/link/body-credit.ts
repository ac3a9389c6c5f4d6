import { LinkProtocolError } from '../errors.js'

interface Waiting {
  readonly bytes: number
  readonly go: () => void
}

/**
 * The server's share of what a worker holds of request bodies that are not whole. Each body is reserved entirely before its
 * first byte is sent, in the order of asking, so that no two half-arrived bodies ever wait for each other, and a large one is
 * not overtaken for ever by small ones.
 */
export class BodyCredit {
  readonly #totalBytes: number
  readonly #line = new Set<Waiting>()
  #reservedBytes = 0

  constructor(totalBytes: number) {
    this.#totalBytes = totalBytes
  }

  get reservedBytes(): number {
    return this.#reservedBytes
  }

  /** Requests that stand in line. */
  get waitingCount(): number {
    return this.#line.size
  }

  /**
   * Calls `go` when the bytes are reserved, in this turn if it can be. A body of no bytes needs no place in the line.
   * @param bytes at most all that there is; the caller has checked
   * @returns what leaves the line; it does nothing once `go` was called
   */
  reserve(bytes: number, go: () => void): () => void {
    if (bytes === 0) {
      go()
      return () => {}
    }
    const waiting: Waiting = { bytes, go }
    this.#line.add(waiting)
    this.#advance()
    return () => {
      // Who was first may have held up others that fit.
      if (this.#line.delete(waiting)) this.#advance()
    }
  }

  /** @throws LinkProtocolError for more than is reserved */
  giveBack(bytes: number): void {
    if (bytes > this.#reservedBytes) {
      throw new LinkProtocolError(`credit of ${bytes} bytes where ${this.#reservedBytes} are out`)
    }
    this.#reservedBytes -= bytes
    this.#advance()
  }

  #advance(): void {
    for (const waiting of this.#line) {
      if (this.#reservedBytes + waiting.bytes > this.#totalBytes) return
      this.#line.delete(waiting)
      this.#reservedBytes += waiting.bytes
      waiting.go()
    }
  }
}
