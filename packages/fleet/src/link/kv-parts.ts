import { LinkProtocolError } from '../errors.js'
import type { LinkFrame } from './frames.js'

type KvFrame = Extract<LinkFrame, { type: 'kvSnapshot' | 'kvBatch' }>

type KvBatch = { readonly type: 'batch'; readonly sequence: number; readonly payload: Uint8Array }

/** What the parts of one message say together. */
export type KvWhole =
  | { readonly type: 'snapshot'; readonly sequence: number; readonly payloads: readonly Uint8Array[] }
  | KvBatch

/** A message to be cut into parts. The payloads of a snapshot may be produced while it is. */
export type KvOutgoing =
  | { readonly type: 'snapshot'; readonly sequence: number; readonly payloads: Iterable<Uint8Array> }
  | KvBatch

const lengthBytes = 4
/** More payloads than this in one snapshot are a fault: each costs an object, even when empty. */
const payloadsMax = 1_048_576
/** Beyond the first few, parts must have so many bytes on average: each costs an object, however small it is. */
const partBytesAverageMin = 1024
const partsFreeMax = 1024

/** Thrown for a message that is well formed but larger than we hold; only its stream ends. */
export class KvTooLargeError extends LinkProtocolError {}

/** Joins parts into messages, for one stream. Holds what has arrived of one message, whatever its lengths promise. */
export class KvAssembler {
  readonly #snapshotBytesMax: number
  readonly #batchBytesMax: number
  #type: KvFrame['type'] | undefined
  #sequence = 0
  #heldBytes = 0
  #partCount = 0
  #batchParts: Uint8Array[] = []
  #splitter = new PayloadSplitter()

  constructor(options: { snapshotBytesMax: number; batchBytesMax: number }) {
    this.#snapshotBytesMax = options.snapshotBytesMax
    this.#batchBytesMax = options.batchBytesMax
  }

  /**
   * @returns the message that this part completes
   * @throws LinkProtocolError for parts out of order and for lengths that lie
   * @throws KvTooLargeError beyond the bounds
   */
  accept(frame: KvFrame): KvWhole | undefined {
    if (frame.first) {
      if (this.#type) throw new LinkProtocolError(`${frame.type} begins inside another message`)
      this.#type = frame.type
      this.#sequence = frame.sequence
    } else if (this.#type !== frame.type) {
      throw new LinkProtocolError(`${frame.type} part that continues nothing`)
    }
    const boundBytes = frame.type === 'kvSnapshot' ? this.#snapshotBytesMax : this.#batchBytesMax
    this.#heldBytes += frame.bytes.byteLength
    if (this.#heldBytes > boundBytes) {
      throw new KvTooLargeError(`${frame.type} of more than ${boundBytes} bytes`)
    }
    this.#partCount += 1
    if (this.#partCount > partsFreeMax + this.#heldBytes / partBytesAverageMin) {
      throw new LinkProtocolError(`${frame.type} in ${this.#partCount} parts for ${this.#heldBytes} bytes`)
    }
    // Copied, so that no message keeps a chunk of the socket alive.
    const bytes = new Uint8Array(frame.bytes)
    if (frame.type === 'kvSnapshot') this.#splitter.add(bytes)
    else this.#batchParts.push(bytes)
    if (!frame.last) return undefined
    const sequence = this.#sequence
    this.#type = undefined
    this.#heldBytes = 0
    this.#partCount = 0
    if (frame.type === 'kvSnapshot') return { type: 'snapshot', sequence, payloads: this.#splitter.finish() }
    const payload = join(this.#batchParts)
    this.#batchParts = []
    return { type: 'batch', sequence, payload }
  }
}

/** Reads (length:u32 payload)* as it arrives, so that no step of it takes longer than one part, and nothing is held twice. */
class PayloadSplitter {
  readonly #length = new Uint8Array(lengthBytes)
  /** Bytes of the length that have arrived; all of them while a payload is under way. */
  #lengthFilled = 0
  #leftBytes = 0
  #pieces: Uint8Array[] = []
  #payloads: Uint8Array[] = []

  add(bytes: Uint8Array): void {
    let offset = 0
    for (;;) {
      while (this.#lengthFilled < lengthBytes) {
        const byte = bytes[offset]
        if (byte === undefined) return
        this.#length[this.#lengthFilled++] = byte
        offset += 1
        if (this.#lengthFilled === lengthBytes)
          this.#leftBytes = new DataView(this.#length.buffer).getUint32(0, true)
      }
      const piece = bytes.subarray(offset, offset + this.#leftBytes)
      offset += piece.byteLength
      this.#leftBytes -= piece.byteLength
      this.#pieces.push(piece)
      if (this.#leftBytes > 0) return
      if (this.#payloads.length >= payloadsMax) {
        throw new LinkProtocolError(`snapshot of more than ${payloadsMax} payloads`)
      }
      this.#payloads.push(join(this.#pieces))
      this.#pieces = []
      this.#lengthFilled = 0
    }
  }

  /** @throws LinkProtocolError inside a payload or its length */
  finish(): Uint8Array[] {
    if (this.#lengthFilled === lengthBytes) {
      throw new LinkProtocolError(`snapshot ends where ${this.#leftBytes} bytes of a payload are missing`)
    }
    if (this.#lengthFilled > 0) throw new LinkProtocolError('snapshot ends inside a length')
    const payloads = this.#payloads
    this.#payloads = []
    return payloads
  }
}

function join(pieces: readonly Uint8Array[]): Uint8Array {
  const [only] = pieces
  if (only && pieces.length === 1) return only
  const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.byteLength, 0))
  let offset = 0
  for (const piece of pieces) {
    whole.set(piece, offset)
    offset += piece.byteLength
  }
  return whole
}

/**
 * Cuts a message into frames of at most `partBytesMax` bytes each; at least one, even when it is empty. Takes from a snapshot only
 * what the next frame needs, and leaves it when the generator is left.
 * @throws KvTooLargeError once a snapshot turns out to be larger than `snapshotBytesMax`, or has too many payloads
 */
export function* kvFrames(
  streamId: number,
  message: KvOutgoing,
  limits: { readonly partBytesMax: number; readonly snapshotBytesMax: number },
): Generator<KvFrame> {
  const { partBytesMax } = limits
  const type = message.type === 'snapshot' ? 'kvSnapshot' : 'kvBatch'
  let first = true
  const frame = (bytes: Uint8Array, last: boolean): KvFrame => {
    const sequence = first ? message.sequence : 0
    const made: KvFrame = { type, streamId, first, last, sequence, bytes }
    first = false
    return made
  }
  let part: Uint8Array | undefined
  let filled = 0
  const source =
    message.type === 'batch' ? [message.payload] : snapshotPieces(message.payloads, limits.snapshotBytesMax)
  for (const piece of source) {
    let offset = 0
    while (offset < piece.byteLength) {
      // A full part goes out only when more is known to follow, because the last one says that it is the last.
      if (part && filled === partBytesMax) {
        yield frame(part, false)
        part = undefined
      }
      if (!part) {
        part = new Uint8Array(
          message.type === 'batch' ? Math.min(partBytesMax, piece.byteLength - offset) : partBytesMax,
        )
        filled = 0
      }
      const taken = Math.min(part.byteLength - filled, piece.byteLength - offset)
      part.set(piece.subarray(offset, offset + taken), filled)
      filled += taken
      offset += taken
    }
  }
  yield frame(part?.subarray(0, filled) ?? new Uint8Array(), true)
}

function* snapshotPieces(payloads: Iterable<Uint8Array>, snapshotBytesMax: number): Generator<Uint8Array> {
  // One for all: it is copied before the next is asked for.
  const length = new Uint8Array(lengthBytes)
  const lengthView = new DataView(length.buffer)
  let sizeBytes = 0
  let count = 0
  for (const payload of payloads) {
    sizeBytes += lengthBytes + payload.byteLength
    count += 1
    if (sizeBytes > snapshotBytesMax) {
      throw new KvTooLargeError(
        `kv snapshot exceeds ${snapshotBytesMax} bytes; raise limits.snapshotBytesMax on both ends`,
      )
    }
    if (count > payloadsMax) throw new KvTooLargeError(`kv snapshot of more than ${payloadsMax} payloads`)
    lengthView.setUint32(0, payload.byteLength, true)
    yield length
    yield payload
  }
}
