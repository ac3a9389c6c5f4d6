// The link's frames. One frame is one binary WebSocket message; integers are little-endian.
//
//   frame   := type:u8 flags:u8 reserved:u16 stream:u32 payload
//   reserved is 0. flags are 0 but for KV_SNAPSHOT and KV_BATCH. Whatever breaks a rule below ends the connection.
//
//   type             from    stream   payload
//   1  HELLO         worker  0        json {protocol, version, record, settings, kvEvents, requestBodyBytesMax?,
//                                     requestBodiesBytesMax?}; the first frame, once
//   2  WELCOME       server  0        json {server, settings}; the answer, or
//   3  REFUSE        server  0        json {reason, setting?, server?, worker?}; then the server closes
//   4  PING          both    any      empty; answered by
//   5  PONG          both    as PING  empty. A pong tells that everything sent before its ping has been read
//   6  REQUEST       server  new      json {method, path, headers, bodyBytes, creditBytes}; then DATA of the body, then END
//   7  RESPONSE      worker  request  json {status, headers}; then DATA of the body, then END or ERROR
//   8  DATA          both    request  1 or more bytes
//   9  END           both    request  empty; this direction of the stream is complete
//   10 ERROR         worker  any      json {code, message}; in place of RESPONSE, END or events; ends the stream
//   11 CANCEL        server  any      empty; ends the stream
//   12 KV_SUBSCRIBE  server  new      json {rank, creditBytes}; then KV_SNAPSHOT, then any number of KV_BATCH and KV_SNAPSHOT
//   13 KV_SNAPSHOT   worker  kv       flags 1 first, 2 last; part; the parts joined are (length:u32 payload)*
//   14 KV_BATCH      worker  kv       flags 1 first, 2 last; part; the parts joined are one payload
//   15 DRAIN         worker  0        empty; no new work, please. Running streams go on
//   16 LOAD          worker  0        json {runningRequests, waitingRequests, kvUsageRatio}
//   17 CREDIT        server  request, kv   bytes:u32, 1 or more: the worker may send so much more of this stream
//                    worker  0        bytes:u32, 1 or more: bodies of so many bytes have left the worker's intake
//
//   Credit. DATA of a response, KV_SNAPSHOT and KV_BATCH cost the bytes of their body or part and 64 for the frame. A stream
//   begins with the creditBytes of its head; who sends beyond its credit breaks the protocol. A KV_BATCH costs at most half
//   of its stream's first credit, all parts together. Request bodies cost their bodyBytes when REQUEST is sent, against the
//   requestBodiesBytesMax of the connection, and are whole before anything else needs credit. Other frames cost nothing.
//
//   part    := [sequence:i64, in the first part only] bytes
//   Stream ids are chosen by the server, never 0, and not used again while in use. Frames of a stream that is not known
//   are ignored: they crossed its end. JSON is UTF-8 of at most 64 KiB.

import type { z } from 'zod'
import { LinkProtocolError } from '../errors.js'
import {
  Hello,
  KvSubscribe,
  type LinkFrame,
  Load,
  Refusal,
  RequestHead,
  ResponseHead,
  StreamError,
  Welcome,
} from './frames.js'
import { headBytesMax } from './limits.js'

export const frameHeaderBytes = 8
const sequenceBytes = 8
const firstFlag = 1
const lastFlag = 2

const codes = {
  hello: 1,
  welcome: 2,
  refuse: 3,
  ping: 4,
  pong: 5,
  request: 6,
  response: 7,
  data: 8,
  end: 9,
  error: 10,
  cancel: 11,
  kvSubscribe: 12,
  kvSnapshot: 13,
  kvBatch: 14,
  drain: 15,
  load: 16,
  credit: 17,
} as const satisfies Record<LinkFrame['type'], number>

const types = new Map(
  Object.entries(codes).map(([type, code]) => [code as number, type as LinkFrame['type']]),
)
const ofConnection = new Set<LinkFrame['type']>(['hello', 'welcome', 'refuse', 'drain', 'load'])
const ofEither = new Set<LinkFrame['type']>(['ping', 'pong', 'credit'])

/** @throws LinkProtocolError when the head is larger than 64 KiB, or the frame larger than `frameBytesMax` */
export function encodeFrame(frame: LinkFrame, frameBytesMax: number): Uint8Array {
  const streamId = 'streamId' in frame ? frame.streamId : 0
  let flags = 0
  let payload: Uint8Array = new Uint8Array()
  let sequence: number | undefined
  if ('head' in frame) {
    payload = encodeHead(frame.type, frame.head)
  } else if (frame.type === 'credit') {
    payload = encodeCredit(frame.bytes)
  } else if ('bytes' in frame) {
    payload = frame.bytes
    if (frame.type !== 'data') {
      flags = (frame.first ? firstFlag : 0) | (frame.last ? lastFlag : 0)
      if (frame.first) sequence = frame.sequence
    }
  }
  const payloadStart = frameHeaderBytes + (sequence === undefined ? 0 : sequenceBytes)
  const sizeBytes = payloadStart + payload.byteLength
  if (sizeBytes > frameBytesMax) {
    throw new LinkProtocolError(
      `${frame.type} frame of ${sizeBytes} bytes exceeds ${frameBytesMax}; raise limits.frameBytesMax`,
    )
  }
  const bytes = Buffer.allocUnsafe(sizeBytes)
  bytes[0] = codes[frame.type]
  bytes[1] = flags
  bytes.writeUInt16LE(0, 2)
  bytes.writeUInt32LE(streamId, 4)
  if (sequence !== undefined) bytes.writeBigInt64LE(BigInt(sequence), frameHeaderBytes)
  bytes.set(payload, payloadStart)
  return bytes
}

/**
 * Reads one message. Bytes of the result are views of it; nothing is allocated that a length asked for.
 * @throws LinkProtocolError
 */
export function decodeFrame(message: Uint8Array, frameBytesMax: number): LinkFrame {
  if (message.byteLength < frameHeaderBytes)
    fail(`frame of ${message.byteLength} bytes is shorter than its header`)
  if (message.byteLength > frameBytesMax)
    fail(`frame of ${message.byteLength} bytes exceeds ${frameBytesMax}`)
  const view = Buffer.from(message.buffer, message.byteOffset, message.byteLength)
  const code = view.readUInt8(0)
  const flags = view.readUInt8(1)
  const streamId = view.readUInt32LE(4)
  const payload = view.subarray(frameHeaderBytes)
  const type = types.get(code)
  if (type === undefined) fail(`unknown frame type ${code}`)
  if (view.readUInt16LE(2) !== 0) fail(`${type} frame with reserved bits set`)
  if (!ofEither.has(type) && ofConnection.has(type) !== (streamId === 0)) {
    fail(`${type} frame on stream ${streamId}`)
  }
  if (flags !== 0 && type !== 'kvSnapshot' && type !== 'kvBatch') fail(`${type} frame with flags ${flags}`)
  switch (type) {
    case 'hello':
      return { type, head: decodeHead(type, Hello, payload) }
    case 'welcome':
      return { type, head: decodeHead(type, Welcome, payload) }
    case 'refuse':
      return { type, head: decodeHead(type, Refusal, payload) }
    case 'load':
      return { type, head: decodeHead(type, Load, payload) }
    case 'request':
      return { type, streamId, head: decodeHead(type, RequestHead, payload) }
    case 'response':
      return { type, streamId, head: decodeHead(type, ResponseHead, payload) }
    case 'error':
      return { type, streamId, head: decodeHead(type, StreamError, payload) }
    case 'kvSubscribe':
      return { type, streamId, head: decodeHead(type, KvSubscribe, payload) }
    case 'data':
      if (payload.byteLength === 0) fail('data frame without data')
      return { type, streamId, bytes: payload }
    case 'credit':
      return { type, streamId, bytes: decodeCredit(payload) }
    case 'kvSnapshot':
    case 'kvBatch':
      return { type, streamId, ...decodePart(type, flags, payload) }
    default:
      if (payload.byteLength > 0) fail(`${type} frame with a payload`)
      return type === 'drain' ? { type } : { type, streamId }
  }
}

function encodeCredit(creditBytes: number): Uint8Array {
  const bytes = Buffer.allocUnsafe(4)
  bytes.writeUInt32LE(creditBytes)
  return bytes
}

function decodeCredit(payload: Buffer): number {
  if (payload.byteLength !== 4) fail(`credit frame with a payload of ${payload.byteLength} bytes`)
  const bytes = payload.readUInt32LE(0)
  if (bytes === 0) fail('credit frame without credit')
  return bytes
}

function encodeHead(type: string, head: unknown): Uint8Array {
  const bytes = Buffer.from(JSON.stringify(head))
  if (bytes.byteLength > headBytesMax)
    fail(`${type} head of ${bytes.byteLength} bytes exceeds ${headBytesMax}`)
  return bytes
}

function decodeHead<S extends z.ZodType>(type: string, schema: S, payload: Buffer): z.output<S> {
  if (payload.byteLength > headBytesMax)
    fail(`${type} head of ${payload.byteLength} bytes exceeds ${headBytesMax}`)
  let value: unknown
  try {
    value = JSON.parse(payload.toString('utf8'))
  } catch (error) {
    fail(`${type} head is not JSON`, error)
  }
  const result = schema.safeParse(value)
  if (!result.success) {
    const issue = result.error.issues[0]
    fail(`${type} head: ${issue?.path.join('.') || 'head'}: ${issue?.message ?? 'unreadable'}`, result.error)
  }
  return result.data
}

function decodePart(type: string, flags: number, payload: Buffer) {
  if (flags > (firstFlag | lastFlag)) fail(`${type} frame with flags ${flags}`)
  const first = (flags & firstFlag) !== 0
  const last = (flags & lastFlag) !== 0
  if (!first) return { first, last, sequence: 0, bytes: payload }
  if (payload.byteLength < sequenceBytes) fail(`${type} frame without its sequence number`)
  const sequence = Number(payload.readBigInt64LE(0))
  // A snapshot taken before the first batch says -1.
  if (sequence < -1 || !Number.isSafeInteger(sequence)) fail(`${type} frame with sequence number ${sequence}`)
  return { first, last, sequence, bytes: payload.subarray(sequenceBytes) }
}

function fail(message: string, cause?: unknown): never {
  throw new LinkProtocolError(message, { cause })
}
