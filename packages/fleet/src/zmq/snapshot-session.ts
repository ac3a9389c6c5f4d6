import { encodeAnswer, partsAhead } from './snapshot-frames.js'

/** A part is sent once it has so many bytes or payloads. */
const partBytes = 256 * 1024
const partPayloadsMax = 256

/** One snapshot on its way to one reader, produced as the reader takes it. */
export class SnapshotSession {
  readonly #sequence: number
  readonly #payloads: Iterator<Uint8Array>
  readonly #payloadBytesMax: number
  #credit = partsAhead
  #isOver = false

  constructor(
    snapshot: { readonly sequence: number; readonly payloads: Iterable<Uint8Array> },
    payloadBytesMax: number,
  ) {
    this.#sequence = snapshot.sequence
    this.#payloads = snapshot.payloads[Symbol.iterator]()
    this.#payloadBytesMax = payloadBytesMax
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** The reader has read a part. More than were sent it cannot have read. */
  more(): void {
    this.#credit = Math.min(partsAhead, this.#credit + 1)
  }

  /**
   * The next part; undefined when there is none, or none now.
   * @throws RangeError for a payload that no reader would take, and whatever the snapshot itself throws
   */
  take(): Uint8Array[] | undefined {
    if (this.#isOver || this.#credit === 0) return undefined
    this.#credit -= 1
    const payloads: Uint8Array[] = []
    let bytes = 0
    while (bytes < partBytes && payloads.length < partPayloadsMax) {
      const step = this.#payloads.next()
      if (step.done) {
        this.#isOver = true
        break
      }
      if (step.value.byteLength > this.#payloadBytesMax) {
        throw new RangeError(
          `a payload of ${step.value.byteLength} bytes exceeds payloadBytesMax (${this.#payloadBytesMax})`,
        )
      }
      payloads.push(step.value)
      bytes += step.value.byteLength
    }
    return encodeAnswer({ type: 'part', sequence: this.#sequence, isLast: this.#isOver, payloads })
  }

  /** Leaves the snapshot where it is. */
  leave(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#payloads.return?.()
  }
}
