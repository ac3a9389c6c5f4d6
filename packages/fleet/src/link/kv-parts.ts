import { LinkProtocolError } from '../errors.js'
import type { LinkFrame } from './frames.js'

type KvFrame = Extract<LinkFrame, { type: 'kvSnapshot' | 'kvBatch' }>

/** What the parts of one message say together. */
export type KvWhole =
  | { readonly type: 'snapshot'; readonly sequence: number; readonly payloads: readonly Uint8Array[] }
  | { readonly type: 'batch'; readonly sequence: number; readonly payload: Uint8Array }

const lengthBytes = 4
/** More payloads than this in one snapshot are a fault: each costs an object, even when empty. */
const payloadsMax = 1_048_576

/** Thrown for a message that is well formed but larger than we hold; only its stream ends. */
export class KvTooLargeError extends LinkProtocolError {}

/** Joins parts into messages, for one stream. */
export class KvAssembler {
  readonly #snapshotBytesMax: number
  readonly #batchBytesMax: number
  #type: KvFrame['type'] | undefined
  #sequence = 0
  #parts: Uint8Array[] = []
  #heldBytes = 0

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
    this.#parts.push(frame.bytes)
    if (!frame.last) return undefined
    const sequence = this.#sequence
    // Copied, so that no message keeps a chunk of the socket alive.
    const bytes = new Uint8Array(this.#heldBytes)
    let offset = 0
    for (const part of this.#parts) {
      bytes.set(part, offset)
      offset += part.byteLength
    }
    this.#type = undefined
    this.#parts = []
    this.#heldBytes = 0
    return frame.type === 'kvBatch'
      ? { type: 'batch', sequence, payload: bytes }
      : { type: 'snapshot', sequence, payloads: splitPayloads(bytes) }
  }
}

function splitPayloads(bytes: Uint8Array): Uint8Array[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const payloads: Uint8Array[] = []
  let offset = 0
  while (offset < bytes.byteLength) {
    if (bytes.byteLength - offset < lengthBytes) throw new LinkProtocolError('snapshot ends inside a length')
    const length = view.getUint32(offset, true)
    offset += lengthBytes
    if (length > bytes.byteLength - offset) {
      throw new LinkProtocolError(
        `snapshot payload of ${length} bytes where ${bytes.byteLength - offset} are left`,
      )
    }
    if (payloads.length >= payloadsMax)
      throw new LinkProtocolError(`snapshot of more than ${payloadsMax} payloads`)
    payloads.push(bytes.subarray(offset, offset + length))
    offset += length
  }
  return payloads
}

/** Size of a snapshot on the wire, in bytes. */
export function snapshotBytes(payloads: readonly Uint8Array[]): number {
  return payloads.reduce((sum, payload) => sum + lengthBytes + payload.byteLength, 0)
}

/** Cuts a message into frames of at most `partBytesMax` bytes each; at least one, even when it is empty. */
export function* kvFrames(streamId: number, whole: KvWhole, partBytesMax: number): Generator<KvFrame> {
  const type = whole.type === 'snapshot' ? 'kvSnapshot' : 'kvBatch'
  let first = true
  const frame = (bytes: Uint8Array, last: boolean): KvFrame => {
    const sequence = first ? whole.sequence : 0
    const made: KvFrame = { type, streamId, first, last, sequence, bytes }
    first = false
    return made
  }
  let part = new Uint8Array(Math.min(partBytesMax, wholeBytes(whole)))
  let filled = 0
  let leftBytes = wholeBytes(whole)
  for (const piece of pieces(whole)) {
    let offset = 0
    while (offset < piece.byteLength) {
      const taken = Math.min(part.byteLength - filled, piece.byteLength - offset)
      part.set(piece.subarray(offset, offset + taken), filled)
      filled += taken
      offset += taken
      leftBytes -= taken
      if (filled < part.byteLength || leftBytes === 0) continue
      yield frame(part, false)
      part = new Uint8Array(Math.min(partBytesMax, leftBytes))
      filled = 0
    }
  }
  yield frame(part.subarray(0, filled), true)
}

function wholeBytes(whole: KvWhole): number {
  return whole.type === 'snapshot' ? snapshotBytes(whole.payloads) : whole.payload.byteLength
}

function* pieces(whole: KvWhole): Generator<Uint8Array> {
  if (whole.type === 'batch') {
    yield whole.payload
    return
  }
  for (const payload of whole.payloads) {
    const length = Buffer.alloc(lengthBytes)
    length.writeUInt32LE(payload.byteLength)
    yield length
    yield payload
  }
}
