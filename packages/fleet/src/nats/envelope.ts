// A request on the wire:
//   reference   payload = {"path","stream","headers","body":<engine request>[,"migratable"][,"deadline_ms","caps","method"]}
//   cap `raw`   payload = the same object without "body", then the bytes of the body; header `rs-body` tells where they begin.
// In the first form the body's own bytes are embedded as they are and cut out as they are: no number in it is ever rewritten.

/** What a request says besides its body. */
export interface EnvelopeHead {
  readonly path: string
  /** Whether the answer is relayed as it comes. */
  readonly stream: boolean
  readonly headers: Readonly<Record<string, string>> | null
  /** Whether the front end could go on with this stream elsewhere. */
  readonly migratable: boolean
  readonly method: 'GET' | 'POST'
  /** Milliseconds of Unix time after which nobody waits for the answer any more. */
  readonly deadlineMs: number | undefined
  /** What the front end understands beyond the reference. */
  readonly caps: readonly string[]
}

/** Extensions of ours that both ends must know before one uses them. */
export const knownCaps = ['seq', 'status-first', 'chunk', 'ack', 'raw', 'heartbeat'] as const
export type Cap = (typeof knownCaps)[number]

const encoder = new TextEncoder()

/**
 * The head as JSON, with every key of the reference but `body`.
 * @returns bytes that end before the closing brace
 */
function openHead(head: EnvelopeHead): string {
  const object: Record<string, unknown> = { path: head.path, stream: head.stream, headers: head.headers }
  if (head.migratable) object.migratable = true
  if (head.method !== 'POST') object.method = head.method
  if (head.deadlineMs !== undefined) object.deadline_ms = head.deadlineMs
  if (head.caps.length > 0) object.caps = head.caps
  return JSON.stringify(object).slice(0, -1)
}

/**
 * The reference's form.
 * @param body the text of a JSON value, which the caller has checked: it is put in as it is
 */
export function encodeEnvelope(head: EnvelopeHead, body: Uint8Array): Uint8Array {
  return Buffer.concat([encoder.encode(`${openHead(head)},"body":`), body, encoder.encode('}')])
}

/** The form for readers with the cap `raw`. */
export function encodeRawHead(head: EnvelopeHead): Uint8Array {
  return encoder.encode(`${openHead(head)}}`)
}

/** A payload that is no request. The message says what is wrong, never what it contains. */
export class EnvelopeError extends Error {
  override readonly name = 'EnvelopeError'
}

/**
 * @param headBytes length of the head where the body follows it raw; undefined for the reference's form
 * @throws EnvelopeError
 */
export function decodeEnvelope(
  payload: Uint8Array,
  headBytes?: number,
): { readonly head: EnvelopeHead; readonly body: Uint8Array } {
  if (headBytes !== undefined) {
    if (headBytes > payload.byteLength) throw new EnvelopeError('head is longer than the message')
    return { head: readHead(payload.subarray(0, headBytes)), body: payload.subarray(headBytes) }
  }
  const span = findMember(payload, 'body')
  if (!span) return { head: readHead(payload), body: new Uint8Array() }
  const before = Buffer.from(payload.buffer, payload.byteOffset, span.start)
  const after = Buffer.from(payload.buffer, payload.byteOffset + span.end, payload.byteLength - span.end)
  const body = payload.subarray(span.start, span.end)
  const isNull = body.byteLength === 4 && Buffer.from(body).toString('latin1') === 'null'
  return {
    head: readHead(Buffer.concat([before, encoder.encode('null'), after])),
    body: isNull ? new Uint8Array() : body,
  }
}

function readHead(bytes: Uint8Array): EnvelopeHead {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))
  } catch (error) {
    throw new EnvelopeError('request is no JSON', { cause: error })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new EnvelopeError('request is no JSON object')
  }
  const object = value as Record<string, unknown>
  const path = object.path ?? '/v1/chat/completions'
  if (typeof path !== 'string' || !path.startsWith('/')) throw new EnvelopeError('path must be absolute')
  const { headers, deadline_ms: deadlineMs, caps } = object
  return {
    path,
    stream: object.stream === true,
    headers: readHeaders(headers),
    migratable: object.migratable === true,
    method: object.method === 'GET' ? 'GET' : 'POST',
    deadlineMs: typeof deadlineMs === 'number' && Number.isFinite(deadlineMs) ? deadlineMs : undefined,
    caps: Array.isArray(caps) ? caps.filter((cap): cap is string => typeof cap === 'string') : [],
  }
}

function readHeaders(headers: unknown): Record<string, string> | null {
  if (headers === null || headers === undefined) return null
  if (typeof headers !== 'object' || Array.isArray(headers)) {
    throw new EnvelopeError('headers must be an object or null')
  }
  const read: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (value !== null && value !== undefined) read[name.toLowerCase()] = String(value)
  }
  return read
}

const quote = 0x22
const backslash = 0x5c

/**
 * The bytes of a member's value in a JSON object, found without reading any value. Of several members of that name the last
 * one counts, as for every JSON reader.
 * @throws EnvelopeError for what is no object or does not end
 */
function findMember(bytes: Uint8Array, name: string): { start: number; end: number } | undefined {
  let at = skipSpace(bytes, 0)
  if (bytes[at] !== 0x7b) throw new EnvelopeError('request is no JSON object')
  at = skipSpace(bytes, at + 1)
  let found: { start: number; end: number } | undefined
  while (bytes[at] === quote) {
    const keyEnd = skipString(bytes, at)
    const key = readKey(bytes.subarray(at, keyEnd))
    at = skipSpace(bytes, keyEnd)
    if (bytes[at] !== 0x3a) throw new EnvelopeError('request is no JSON')
    const start = skipSpace(bytes, at + 1)
    const end = skipValue(bytes, start)
    if (key === name) found = { start, end }
    at = skipSpace(bytes, end)
    if (bytes[at] === 0x2c) at = skipSpace(bytes, at + 1)
    else if (bytes[at] !== 0x7d) throw new EnvelopeError('request is no JSON')
  }
  if (bytes[at] !== 0x7d) throw new EnvelopeError('request is no JSON')
  return found
}

function readKey(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString('utf8'))
  } catch (error) {
    throw new EnvelopeError('request is no JSON', { cause: error })
  }
}

function skipSpace(bytes: Uint8Array, from: number): number {
  let at = from
  while (bytes[at] === 0x20 || bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x09) at += 1
  return at
}

/** From an opening quote to behind the closing one. */
function skipString(bytes: Uint8Array, from: number): number {
  let at = from + 1
  while (at < bytes.byteLength) {
    const byte = bytes[at]
    if (byte === quote) return at + 1
    at += byte === backslash ? 2 : 1
  }
  throw new EnvelopeError('request is cut short')
}

/** To behind a value; of objects and arrays only the nesting is looked at. The engine judges the rest. */
function skipValue(bytes: Uint8Array, from: number): number {
  let depth = 0
  let at = from
  while (at < bytes.byteLength) {
    const byte = bytes[at]
    if (byte === quote) {
      at = skipString(bytes, at)
      if (depth === 0) return at
      continue
    }
    if (byte === 0x7b || byte === 0x5b) depth += 1
    else if (byte === 0x7d || byte === 0x5d) {
      if (depth === 0) break
      depth -= 1
      if (depth === 0) return at + 1
    } else if (
      depth === 0 &&
      (byte === 0x2c || byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09)
    )
      break
    at += 1
  }
  if (depth > 0 || at === from) throw new EnvelopeError('request is cut short')
  return at
}

/**
 * Whether bytes may stand as the body of the reference's form, and what they say of streaming.
 * @returns undefined for what is no JSON object
 */
export function readEngineRequest(body: Uint8Array): { readonly stream: boolean } | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body))
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
    return { stream: (value as { stream?: unknown }).stream === true }
  } catch {
    // No JSON: that is the answer.
    return undefined
  }
}
