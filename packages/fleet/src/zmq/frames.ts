/**
 * What travels. Engines publish on a PUB socket, one multipart message for each batch:
 *
 *     topic, sequence (u64 big endian), payload      vLLM, SGLang, and workers of ours
 *     topic, payload                                 ATOM
 *
 * and answer on a ROUTER socket to `"", start (u64 big endian)`, as vLLM and SGLang do:
 *
 *     "", sequence, payload      for every batch still held from `start` on, ascending
 *     "", 2^64 - 1, ""           the end
 *
 * Some builds put the topic before the sequence; messages are therefore read from their end.
 */

/** A batch as it arrived; its sequence is missing where the engine does not number. */
export interface LiveBatch {
  readonly sequence: number | undefined
  readonly payload: Uint8Array
}

export interface NumberedBatch {
  readonly sequence: number
  readonly payload: Uint8Array
}

const sequenceBytes = 8
const endSequence = 0xffff_ffff_ffff_ffffn
/** Topic, sequence, payload; a few more are let through, for engines to come. */
const framesMax = 8

/** @returns undefined for what is no batch, whatever it is */
export function parseLive(frames: readonly Uint8Array[], payloadBytesMax: number): LiveBatch | undefined {
  const payload = frames.at(-1)
  if (!payload || frames.length < 2 || frames.length > framesMax) return undefined
  if (payload.byteLength > payloadBytesMax) return undefined
  if (frames.length === 2) return { sequence: undefined, payload: copied(payload) }
  const sequence = decodeSequence(frames.at(-2))
  return sequence === undefined ? undefined : { sequence, payload: copied(payload) }
}

/** One message of a replay, as a DEALER sees it. @returns undefined for what is none */
export function parseReplay(
  frames: readonly Uint8Array[],
  payloadBytesMax: number,
): NumberedBatch | 'end' | undefined {
  const payload = frames.at(-1)
  const number = frames.at(-2)
  if (!payload || !number || frames.length > framesMax) return undefined
  if (isEnd(number)) return payload.byteLength === 0 ? 'end' : undefined
  const sequence = decodeSequence(number)
  if (sequence === undefined || payload.byteLength > payloadBytesMax) return undefined
  return { sequence, payload: copied(payload) }
}

/** @param sequence integer, 0..2^53 - 1 */
export function encodeSequence(sequence: number): Buffer {
  const bytes = Buffer.alloc(sequenceBytes)
  bytes.writeBigUInt64BE(BigInt(sequence))
  return bytes
}

/** @returns undefined unless it has 8 bytes and fits a safe integer; nobody counts that far */
export function decodeSequence(frame: Uint8Array | undefined): number | undefined {
  if (frame?.byteLength !== sequenceBytes) return undefined
  const value = viewOf(frame).getBigUint64(0)
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : undefined
}

export function encodeEnd(): Buffer {
  return Buffer.alloc(sequenceBytes, 0xff)
}

function isEnd(frame: Uint8Array): boolean {
  return frame.byteLength === sequenceBytes && viewOf(frame).getBigUint64(0) === endSequence
}

function viewOf(frame: Uint8Array): DataView {
  return new DataView(frame.buffer, frame.byteOffset, frame.byteLength)
}

/** A small frame lies in a chunk of the socket, and would keep all of it alive. */
function copied(frame: Uint8Array): Uint8Array {
  return new Uint8Array(frame)
}
