import { type Msg, type MsgHdrs, headers as newHeaders } from '@nats-io/transport-node'

// Replies on an inbox. Header names are case-sensitive and must be lower case.
//   rs-type    data | done | error ; ours, only to who has the cap: ack | hb
//   rs-status  HTTP status: on `done`; ours also on the first `data` and on `error`
//   rs-seq     ours: 0, 1, 2 ... over data, done and error of one reply
//   rs-headers ours: the response's headers as a JSON object, on the first `data`
//   rs-part    ours: `<i>/<n>`, i from 1: a piece of a request or of a chunk that was larger than a message may be;
//              on `ack` the number of pieces that have arrived

export type ReplyType = 'data' | 'done' | 'error' | 'ack' | 'hb'

export type Reply =
  | { readonly type: 'noResponders' }
  | { readonly type: 'publishAck'; readonly sequence: number | undefined; readonly error: string | undefined }
  | { readonly type: 'unknown' }
  | {
      readonly type: ReplyType
      readonly bytes: Uint8Array
      readonly status: number | undefined
      readonly sequence: number | undefined
      readonly headers: Readonly<Record<string, string>> | undefined
      readonly part: number | undefined
    }

const replyTypes: ReadonlySet<string> = new Set<ReplyType>(['data', 'done', 'error', 'ack', 'hb'])

/** Reads what arrived on an inbox. Never throws: what cannot be read is `unknown`. */
export function readReply(message: Pick<Msg, 'headers' | 'data'>): Reply {
  const { headers, data } = message
  const type = headers?.get('rs-type') ?? ''
  if (type === '') {
    if (headers?.code === 503 && data.byteLength === 0) return { type: 'noResponders' }
    return readPublishAck(data) ?? { type: 'data', bytes: data, ...nothing }
  }
  if (!replyTypes.has(type)) return { type: 'unknown' }
  return {
    type: type as ReplyType,
    bytes: data,
    status: natural(headers?.get('rs-status'), 999),
    sequence: natural(headers?.get('rs-seq')),
    headers: readHeaders(headers?.get('rs-headers')),
    part: natural(headers?.get('rs-part')?.split('/')[0]),
  }
}

const nothing = { status: undefined, sequence: undefined, headers: undefined, part: undefined }

/** Acks are short; what is longer is an engine's answer, whatever it looks like. */
const publishAckBytesMax = 4096

/**
 * The broker's receipt for a message that a stream took, or would not take: `{"stream":"...","seq":1}`, also with more keys, or an
 * object with `error`. It comes without `rs-type`, as the chunks of very old workers do, so its form must tell.
 */
export function readPublishAck(data: Uint8Array): Extract<Reply, { type: 'publishAck' }> | undefined {
  if (data.byteLength > publishAckBytesMax || data[0] !== 0x7b) return undefined
  let value: Record<string, unknown>
  try {
    value = JSON.parse(Buffer.from(data).toString('utf8'))
  } catch {
    // A chunk of text that begins with a brace.
    return undefined
  }
  const { stream, seq, error } = value
  if (typeof error === 'object' && error !== null && isBrokerError(error)) {
    return { type: 'publishAck', sequence: undefined, error: String((error as ApiError).description ?? '') }
  }
  if (typeof stream !== 'string' || !('seq' in value)) return undefined
  return { type: 'publishAck', sequence: typeof seq === 'number' ? seq : undefined, error: undefined }
}

interface ApiError {
  readonly description?: unknown
}

/** An engine's error object has a message or a type; the broker's has neither. */
function isBrokerError(error: object): boolean {
  return !('message' in error) && !('type' in error) && ('code' in error || 'err_code' in error)
}

export interface ReplyFields {
  readonly status?: number | undefined
  readonly sequence?: number | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly part?: string | undefined
}

export function replyHeaders(type: ReplyType, fields: ReplyFields = {}): MsgHdrs {
  const made = newHeaders()
  made.append('rs-type', type)
  if (fields.status !== undefined) made.append('rs-status', String(fields.status))
  if (fields.sequence !== undefined) made.append('rs-seq', String(fields.sequence))
  if (fields.headers !== undefined) made.append('rs-headers', asciiJson(fields.headers))
  if (fields.part !== undefined) made.append('rs-part', fields.part)
  return made
}

/** Headers of messages are lines of text: whatever might end one or is no ASCII is escaped. */
function asciiJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

function readHeaders(text: string | undefined): Record<string, string> | undefined {
  if (!text) return undefined
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value !== 'object' || value === null) return undefined
    const read: Record<string, string> = {}
    for (const [name, one] of Object.entries(value)) if (typeof one === 'string') read[name] = one
    return read
  } catch {
    // Headers that cannot be read are no headers.
    return undefined
  }
}

/** A whole number in decimal, or undefined. */
export function natural(text: string | undefined, max = Number.MAX_SAFE_INTEGER): number | undefined {
  if (!text || !/^\d{1,16}$/.test(text)) return undefined
  const value = Number(text)
  return value <= max ? value : undefined
}
