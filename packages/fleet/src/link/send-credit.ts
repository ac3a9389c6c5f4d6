import { LinkProtocolError } from '../errors.js'
import { frameCostBytes } from './limits.js'

/** More credit than this at once is a fault of the peer's. */
const creditBytesMax = 0xffff_ffff

/** The sender's end of one stream's credit. One party waits for it at a time. */
export class SendCredit {
  #leftBytes: number
  #isClosed = false
  #wake: (() => void) | undefined

  constructor(firstBytes: number) {
    this.#leftBytes = firstBytes
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** Bytes that one frame may carry now; 0 when nothing may be sent. */
  get roomBytes(): number {
    return this.#isClosed ? 0 : Math.max(0, this.#leftBytes - frameCostBytes)
  }

  /** A frame with so many bytes is sent. */
  spend(bytes: number): void {
    this.#leftBytes -= bytes + frameCostBytes
  }

  /** @throws LinkProtocolError when the peer grants more than it can mean */
  add(bytes: number): void {
    this.#leftBytes += bytes
    if (this.#leftBytes > creditBytesMax) throw new LinkProtocolError(`credit of ${this.#leftBytes} bytes`)
    this.#settle()
  }

  /** Resolves once there is room for `bytes` (>= 1), or the stream is closed. @returns whether there is room */
  async wait(bytes = 1): Promise<boolean> {
    while (this.roomBytes < bytes) {
      if (this.#isClosed) return false
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    return true
  }

  close(): void {
    this.#isClosed = true
    this.#settle()
  }

  #settle(): void {
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}
