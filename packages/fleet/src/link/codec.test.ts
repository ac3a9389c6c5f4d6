import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LinkProtocolError } from '../errors.js'
import { decodeFrame, encodeFrame } from './codec.js'
import type { LinkFrame } from './frames.js'
import { headBytesMax } from './limits.js'

const boundBytes = 1 << 20
const streamId = fc.integer({ min: 1, max: 0xffff_ffff })
const bytes = fc.uint8Array({ minLength: 1, maxLength: 200 })
const plainKey = fc.string({ unit: 'grapheme' }).filter((key) => key !== '__proto__')
const headers = fc.dictionary(plainKey, fc.string({ unit: 'grapheme' }), { noNullPrototype: true })
const settings = fc.dictionary(
  plainKey,
  fc.oneof(fc.string(), fc.integer(), fc.boolean(), fc.constant(null)),
  { noNullPrototype: true },
)
const count = fc.nat(1000)

const kvPart = fc
  .record({
    streamId,
    first: fc.boolean(),
    last: fc.boolean(),
    sequence: fc.integer({ min: -1, max: Number.MAX_SAFE_INTEGER }),
    bytes: fc.uint8Array({ maxLength: 200 }),
  })
  .map((part) => (part.first ? part : { ...part, sequence: 0 }))

const frames: fc.Arbitrary<LinkFrame> = fc.oneof(
  fc.record({
    type: fc.constant('hello' as const),
    head: fc.record({
      protocol: fc.nat(),
      version: fc.string({ maxLength: 64 }),
      record: fc.constant({ worker_id: 'w:1' }),
      settings,
      kvEvents: fc.boolean(),
      requestBodyBytesMax: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    }),
  }),
  fc.record({
    type: fc.constant('welcome' as const),
    head: fc.record({ server: fc.constant({}), settings }),
  }),
  fc.record({ type: fc.constant('refuse' as const), head: fc.record({ reason: fc.string() }) }),
  fc.record({ type: fc.constantFrom('ping' as const, 'pong' as const), streamId: fc.nat(0xffff_ffff) }),
  fc.record({
    type: fc.constant('request' as const),
    streamId,
    head: fc.record({
      method: fc.constantFrom('GET' as const, 'POST' as const),
      path: fc.webPath().map((path) => `/${path}`),
      headers,
      bodyBytes: fc.nat(),
      creditBytes: fc.nat(),
    }),
  }),
  fc.record({
    type: fc.constant('response' as const),
    streamId,
    head: fc.record({ status: fc.integer({ min: 200, max: 599 }), headers }),
  }),
  fc.record({ type: fc.constant('data' as const), streamId, bytes }),
  fc.record({ type: fc.constantFrom('end' as const, 'cancel' as const), streamId }),
  fc.record({
    type: fc.constant('error' as const),
    streamId,
    head: fc.record({ code: fc.string({ maxLength: 64 }), message: fc.string() }),
  }),
  fc.record({
    type: fc.constant('kvSubscribe' as const),
    streamId,
    head: fc.record({ rank: fc.nat(65_535), creditBytes: fc.nat() }),
  }),
  kvPart.map((part) => ({ type: 'kvSnapshot' as const, ...part })),
  kvPart.map((part) => ({ type: 'kvBatch' as const, ...part })),
  fc.record({
    type: fc.constant('credit' as const),
    streamId: fc.nat(0xffff_ffff),
    bytes: fc.integer({ min: 1, max: 0xffff_ffff }),
  }),
  fc.constant({ type: 'drain' as const }),
  fc.record({
    type: fc.constant('load' as const),
    head: fc.record({
      runningRequests: count,
      waitingRequests: count,
      kvUsageRatio: fc.double({ min: 0, max: 1, noNaN: true }).map((ratio) => ratio + 0),
    }),
  }),
)

describe('link frames', () => {
  test('what is encoded is decoded as it was, wherever it lies in memory', () => {
    fc.assert(
      fc.property(frames, fc.nat(9), (frame, offset) => {
        const encoded = encodeFrame(frame, boundBytes)
        const shifted = new Uint8Array(encoded.byteLength + offset)
        shifted.set(encoded, offset)
        expect(plain(decodeFrame(shifted.subarray(offset), boundBytes))).toEqual(plain(frame))
      }),
    )
  })

  test('random bytes are a frame or a protocol error', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (message) => {
        expectFrameOrError(message)
      }),
    )
  })

  test('random payloads behind a good header are a frame or a protocol error', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 20 }),
        fc.nat(4),
        fc.nat(2),
        fc.oneof(
          fc.uint8Array({ maxLength: 100 }),
          fc.json().map((text) => new TextEncoder().encode(text)),
        ),
        (type, flags, stream, payload) => {
          expectFrameOrError(Uint8Array.from([type, flags, 0, 0, stream, 0, 0, 0, ...payload]))
        },
      ),
      { numRuns: 500 },
    )
  })

  test('a frame that was cut anywhere, or had a byte changed, is a frame or a protocol error', () => {
    fc.assert(
      fc.property(frames, fc.nat(), fc.nat(), fc.nat(255), (frame, cut, at, value) => {
        const encoded = encodeFrame(frame, boundBytes)
        expectFrameOrError(encoded.subarray(0, cut % (encoded.byteLength + 1)))
        const changed = Uint8Array.from(encoded)
        changed[at % changed.byteLength] = value
        expectFrameOrError(changed)
      }),
    )
  })

  test('a message beyond the bound is an error before anything in it is read, and is never made', () => {
    const large = new Uint8Array(2_000)
    expect(() => decodeFrame(large, 1_999)).toThrow(/2000 bytes exceeds 1999/)
    expect(() => encodeFrame({ type: 'data', streamId: 1, bytes: large }, 2_007)).toThrow(
      /2008 bytes exceeds 2007/,
    )
  })

  test('a head beyond 64 KiB is an error on both sides', () => {
    const large = { 'x-large': 'x'.repeat(headBytesMax) }
    const frame: LinkFrame = { type: 'response', streamId: 1, head: { status: 200, headers: large } }
    expect(() => encodeFrame(frame, boundBytes)).toThrow(LinkProtocolError)
    const json = Buffer.from(JSON.stringify({ status: 200, headers: large }))
    const message = Buffer.concat([Buffer.of(7, 0, 0, 0, 1, 0, 0, 0), json])
    expect(() => decodeFrame(message, boundBytes)).toThrow(/response head of \d+ bytes exceeds 65536/)
  })

  test('deeply nested JSON is an error or a value, never a crash', () => {
    for (const open of ['[', '{"a":']) {
      const payload = Buffer.from(open.repeat(Math.floor(headBytesMax / open.length)))
      expectFrameOrError(Buffer.concat([Buffer.of(1, 0, 0, 0, 0, 0, 0, 0), payload]))
    }
    const record = `${'['.repeat(20_000)}${']'.repeat(20_000)}`
    const hello = `{"protocol":1,"version":"","settings":{},"kvEvents":false,"record":${record}}`
    expectFrameOrError(Buffer.concat([Buffer.of(1, 0, 0, 0, 0, 0, 0, 0), Buffer.from(hello)]))
  })

  test.each<[string, number[]]>([
    ['an unknown type', [18, 0, 0, 0, 1, 0, 0, 0]],
    ['a credit of nothing', [17, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]],
    ['a credit without an amount', [17, 0, 0, 0, 1, 0, 0, 0]],
    ['a credit with more than an amount', [17, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]],
    ['reserved bits', [9, 0, 1, 0, 1, 0, 0, 0]],
    ['flags where none belong', [9, 1, 0, 0, 1, 0, 0, 0]],
    ['unknown flags', [14, 4, 0, 0, 1, 0, 0, 0]],
    ['a stream frame without stream', [9, 0, 0, 0, 0, 0, 0, 0]],
    ['a connection frame on a stream', [15, 0, 0, 0, 1, 0, 0, 0]],
    ['an end with a payload', [9, 0, 0, 0, 1, 0, 0, 0, 1]],
    ['data without data', [8, 0, 0, 0, 1, 0, 0, 0]],
    ['a first part without sequence', [13, 1, 0, 0, 1, 0, 0, 0, 1, 2, 3]],
    ['a sequence below -1', [13, 1, 0, 0, 1, 0, 0, 0, 0xfe, 255, 255, 255, 255, 255, 255, 255]],
    ['a sequence beyond 2^53', [14, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]],
  ])('%s is an error', (_name, message) => {
    expect(() => decodeFrame(Uint8Array.from(message), boundBytes)).toThrow(LinkProtocolError)
  })

  test('the bytes on the wire are those of the grammar', () => {
    const hex = (frame: LinkFrame) => Buffer.from(encodeFrame(frame, boundBytes)).toString('hex')
    expect(hex({ type: 'data', streamId: 0x01020304, bytes: Uint8Array.of(0xab) })).toBe('0800000004030201ab')
    expect(
      hex({
        type: 'kvSnapshot',
        streamId: 1,
        first: true,
        last: true,
        sequence: -1,
        bytes: new Uint8Array(),
      }),
    ).toBe('0d03000001000000ffffffffffffffff')
    expect(hex({ type: 'drain' })).toBe('0f00000000000000')
    expect(hex({ type: 'kvSubscribe', streamId: 2, head: { rank: 0, creditBytes: 9 } })).toBe(
      `0c00000002000000${Buffer.from('{"rank":0,"creditBytes":9}').toString('hex')}`,
    )
    expect(hex({ type: 'credit', streamId: 3, bytes: 0x0102_0304 })).toBe('110000000300000004030201')
  })
})

function expectFrameOrError(message: Uint8Array): void {
  try {
    expect(decodeFrame(message, boundBytes).type).toBeTypeOf('string')
  } catch (error) {
    expect(error).toBeInstanceOf(LinkProtocolError)
  }
}

/** Buffers as plain arrays, and heads as JSON says them. */
function plain(frame: LinkFrame): unknown {
  return 'bytes' in frame && typeof frame.bytes !== 'number'
    ? { ...frame, bytes: [...frame.bytes] }
    : JSON.parse(JSON.stringify(frame))
}
