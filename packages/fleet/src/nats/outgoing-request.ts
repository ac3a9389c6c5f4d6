import { type MsgHdrs, headers as newHeaders } from '@nats-io/transport-node'
import { endToEndHeaders } from '../headers.js'
import type { TransportRequest, TransportResponse } from '../ports/request-transport.js'
import type { WorkerRecord } from '../records/worker-record.js'
import {
  type Cap,
  type EnvelopeHead,
  encodeEnvelope,
  encodeRawHead,
  knownCaps,
  readEngineRequest,
} from './envelope.js'

/** What a front end may know of a request beyond its port. */
export interface RequestFlags {
  /** How the worker relays, whatever the body says: prefill legs are never relayed as streams. */
  readonly stream?: boolean
  /** The front end could go on with this stream elsewhere, so a draining worker hands it back. */
  readonly migratable?: boolean
}

export interface OutgoingMessage {
  readonly payload: Uint8Array
  readonly headers: MsgHdrs | undefined
}

/** A request as messages, in the order in which they are to be sent. */
export interface OutgoingRequest {
  readonly type: 'messages'
  readonly messages: readonly OutgoingMessage[]
  readonly isStream: boolean
  /** Whether the worker says that it has taken the request. */
  readonly acknowledges: boolean
}

export interface TooLarge {
  readonly type: 'tooLarge'
  readonly workerId: string
  readonly sizeBytes: number
  readonly payloadBytesMax: number
}

/** Room for what comes besides the payload: headers, subject and inbox count towards the broker's limit in part. */
const headerRoomBytes = 4096

/** What a worker understands beyond the reference; a worker of ours says so in its record. */
export function capsOf(worker: WorkerRecord): ReadonlySet<Cap> {
  const caps = worker.ext?.caps
  if (!Array.isArray(caps)) return new Set()
  return new Set(knownCaps.filter((cap) => caps.includes(cap)))
}

/**
 * Frames a request for a worker: in the reference's form, or with the body as raw bytes where the worker knows that.
 * @returns a text that says why it cannot be sent to that worker at all
 */
export function writeRequest(
  worker: WorkerRecord,
  request: TransportRequest,
  options: { flags: RequestFlags; deadlineMs: number | undefined; payloadBytesMax: number },
): OutgoingRequest | TooLarge | string {
  const caps = capsOf(worker)
  const { flags, payloadBytesMax } = options
  const shared = {
    path: request.path,
    method: request.method,
    migratable: flags.migratable === true,
    deadlineMs: options.deadlineMs,
    caps: knownCaps,
  }
  const acknowledges = caps.has('ack')
  if (!caps.has('raw')) {
    if (request.method !== 'POST') return `its proxy over NATS only knows POST, not ${request.method}`
    const engineRequest = readEngineRequest(request.body)
    if (!engineRequest) return 'its proxy over NATS only takes bodies that are JSON objects'
    const stream = flags.stream ?? engineRequest.stream
    const payload = encodeEnvelope(
      { ...shared, stream, headers: engineHeaders(request.headers) },
      request.body,
    )
    const isTooLarge = payload.byteLength > payloadBytesMax
    if (isTooLarge) return tooLargeFor(worker, payload.byteLength, payloadBytesMax)
    return { type: 'messages', messages: [{ payload, headers: undefined }], isStream: stream, acknowledges }
  }
  const head: EnvelopeHead = {
    ...shared,
    stream: flags.stream ?? true,
    headers: endToEndHeaders(request.headers),
  }
  const headBytes = encodeRawHead(head)
  const payload = Buffer.concat([headBytes, request.body])
  const isWhole = payload.byteLength + headerRoomBytes <= payloadBytesMax
  if (!isWhole && !caps.has('chunk')) return tooLargeFor(worker, payload.byteLength, payloadBytesMax)
  const partBytes = isWhole ? Math.max(1, payload.byteLength) : partSizeBytes(payloadBytesMax)
  const count = Math.max(1, Math.ceil(payload.byteLength / partBytes))
  const messages = Array.from({ length: count }, (_, index) => {
    const headers = newHeaders()
    headers.append('rs-body', String(headBytes.byteLength))
    if (count > 1) headers.append('rs-part', `${index + 1}/${count}`)
    return { payload: payload.subarray(index * partBytes, (index + 1) * partBytes), headers }
  })
  return { type: 'messages', messages, isStream: true, acknowledges }
}

/** Size of the pieces that what does not fit is cut into: three quarters of what the broker takes. */
export function partSizeBytes(payloadBytesMax: number): number {
  return Math.max(1, Math.floor(payloadBytesMax * 0.75) - headerRoomBytes)
}

/** What a client is told of a request that no message can carry to this worker. */
export function tooLarge(outgoing: TooLarge): TransportResponse {
  const { workerId, sizeBytes, payloadBytesMax } = outgoing
  const message =
    `request of ${sizeBytes} bytes exceeds the broker's max_payload of ${payloadBytesMax} bytes, and worker ` +
    `'${workerId}' takes no pieces; raise max_payload at the broker`
  return {
    status: 413,
    headers: { 'content-type': 'application/json' },
    body: (async function* () {
      yield Buffer.from(JSON.stringify({ error: { message, type: 'invalid_request_error', code: 413 } }))
    })(),
  }
}

function tooLargeFor(worker: WorkerRecord, sizeBytes: number, payloadBytesMax: number): TooLarge {
  return { type: 'tooLarge', workerId: worker.worker_id, sizeBytes, payloadBytesMax }
}

/** The reference's proxy makes a request of its own: what describes the bytes of ours would contradict it. */
function engineHeaders(headers: Readonly<Record<string, string>>): Record<string, string> | null {
  const {
    host: _host,
    expect: _expect,
    'content-type': _type,
    'content-encoding': _encoding,
    'accept-encoding': _accept,
    ...kept
  } = endToEndHeaders(headers)
  return Object.keys(kept).length > 0 ? kept : null
}
