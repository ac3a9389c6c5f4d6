import { LinkProtocolError } from '../errors.js'

export interface CreditBudgetOptions {
  /** What one stream may have at most, bytes. */
  readonly streamWindowBytes: number
  /** What one stream may always have, bytes. */
  readonly streamWindowMinBytes: number
  /** What all streams share beyond that, bytes. */
  readonly connectionWindowBytes: number
}

/**
 * What the response streams of one connection may have under way and unread, at the receiving end. Each stream has
 * `streamWindowMinBytes` of its own and takes the rest from what all share, so that a crowd of slow readers makes the windows of
 * others small and never shuts them: n streams hold at most connectionWindowBytes + n * streamWindowMinBytes.
 */
export class CreditBudget {
  readonly options: CreditBudgetOptions
  #sharedBytes = 0
  #usedBytes = 0

  constructor(options: CreditBudgetOptions) {
    this.options = options
  }

  /** Under way or unread of all streams. */
  get usedBytes(): number {
    return this.#usedBytes
  }

  get freeSharedBytes(): number {
    return this.options.connectionWindowBytes - this.#sharedBytes
  }

  /** A stream's use went from one amount to another. */
  move(fromBytes: number, toBytes: number): void {
    const { streamWindowMinBytes } = this.options
    this.#usedBytes += toBytes - fromBytes
    this.#sharedBytes +=
      Math.max(0, toBytes - streamWindowMinBytes) - Math.max(0, fromBytes - streamWindowMinBytes)
  }
}

/**
 * The receiver's end of one stream's credit. What was granted is either still to come or held for a reader; both together stay
 * within the window. Grants go out in halves of the window, not for each piece that was read.
 */
export class CreditWindow {
  readonly #budget: CreditBudget
  readonly #onGrant: (bytes: number) => void
  #outstandingBytes = 0
  #heldBytes = 0
  #isEnded = false

  /** @param onGrant tells the sender that it may send so much more */
  constructor(budget: CreditBudget, onGrant: (bytes: number) => void) {
    this.#budget = budget
    this.#onGrant = onGrant
  }

  /** Received and not released. */
  get heldBytes(): number {
    return this.#heldBytes
  }

  /** @returns the first grant; `onGrant` is not called for it */
  open(): number {
    return this.#grant()
  }

  /** @throws LinkProtocolError when the sender had no credit for it */
  receive(costBytes: number): void {
    if (costBytes > this.#outstandingBytes) {
      throw new LinkProtocolError(
        `frame that costs ${costBytes} bytes on a stream with credit for ${this.#outstandingBytes}`,
      )
    }
    this.#outstandingBytes -= costBytes
    this.#heldBytes += costBytes
  }

  /** Something received has left: it was read, or dropped. */
  release(costBytes: number): void {
    const usedBytes = this.#usedBytes
    this.#heldBytes -= costBytes
    this.#budget.move(usedBytes, usedBytes - costBytes)
    if (this.#isEnded) return
    const grantBytes = this.#grant(0.5)
    if (grantBytes > 0) this.#onGrant(grantBytes)
  }

  /** Nothing more will come. What is held stays charged until it is released. */
  end(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    const usedBytes = this.#usedBytes
    this.#outstandingBytes = 0
    this.#budget.move(usedBytes, this.#heldBytes)
  }

  get #usedBytes(): number {
    return this.#outstandingBytes + this.#heldBytes
  }

  /** @param leastRatio of the window that can be had now; less is not worth a frame */
  #grant(leastRatio = 0): number {
    const { streamWindowBytes, streamWindowMinBytes } = this.#budget.options
    const usedBytes = this.#usedBytes
    const windowBytes = Math.min(
      streamWindowBytes,
      Math.max(usedBytes, streamWindowMinBytes) + this.#budget.freeSharedBytes,
    )
    const grantBytes = windowBytes - usedBytes
    // With nothing held and next to nothing outstanding this is the whole window, so that a sender is never left waiting.
    if (grantBytes <= 0 || grantBytes < windowBytes * leastRatio) return 0
    this.#budget.move(usedBytes, windowBytes)
    this.#outstandingBytes += grantBytes
    return grantBytes
  }
}
