import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LinkProtocolError } from '../errors.js'
import { KvAssembler, KvTooLargeError, type KvWhole, kvFrames } from './kv-parts.js'

const roomy = { snapshotBytesMax: 1 << 20, batchBytesMax: 1 << 20 }
const wholes: fc.Arbitrary<KvWhole> = fc.oneof(
  fc.record({
    type: fc.constant('snapshot' as const),
    sequence: fc.integer({ min: -1, max: 1_000_000 }),
    payloads: fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 10 }),
  }),
  fc.record({
    type: fc.constant('batch' as const),
    sequence: fc.nat(),
    payload: fc.uint8Array({ maxLength: 200 }),
  }),
)

describe('parts of kv messages', () => {
  test('messages cut into parts of any size are joined as they were, one after the other', () => {
    fc.assert(
      fc.property(
        fc.array(wholes, { maxLength: 5 }),
        fc.integer({ min: 1, max: 64 }),
        (messages, partBytesMax) => {
          const assembler = new KvAssembler(roomy)
          const joined: unknown[] = []
          for (const message of messages) {
            const frames = [...kvFrames(1, message, { partBytesMax, snapshotBytesMax: 1 << 20 })]
            expect(frames.length).toBe(Math.max(1, Math.ceil(sizeOf(message) / partBytesMax)))
            for (const frame of frames) {
              expect(frame.bytes.byteLength).toBeLessThanOrEqual(partBytesMax)
              const whole = assembler.accept({ ...frame, bytes: Uint8Array.from(frame.bytes) })
              if (whole) joined.push(plain(whole))
            }
          }
          expect(joined).toEqual(messages.map(plain))
        },
      ),
    )
  })

  test('random parts are a message, part of one, or a protocol error', () => {
    const part = fc.record({
      type: fc.constantFrom('kvSnapshot' as const, 'kvBatch' as const),
      streamId: fc.constant(1),
      first: fc.boolean(),
      last: fc.boolean(),
      sequence: fc.nat(10),
      bytes: fc.uint8Array({ maxLength: 40 }),
    })
    fc.assert(
      fc.property(fc.array(part, { maxLength: 10 }), (parts) => {
        const assembler = new KvAssembler({ snapshotBytesMax: 100, batchBytesMax: 50 })
        try {
          for (const each of parts) assembler.accept(each)
        } catch (error) {
          expect(error).toBeInstanceOf(LinkProtocolError)
        }
      }),
    )
  })

  test.each([
    ['a length beyond the end', [5, 0, 0, 0, 1, 2]],
    ['a length of 4 GiB', [255, 255, 255, 255, 1]],
    ['an end inside a length', [0, 0, 0]],
  ])('%s is an error', (_name, bytes) => {
    const assembler = new KvAssembler(roomy)
    const frame = { type: 'kvSnapshot' as const, streamId: 1, first: true, last: true, sequence: 0 }
    expect(() => assembler.accept({ ...frame, bytes: Uint8Array.from(bytes) })).toThrow(LinkProtocolError)
  })

  test('a message beyond its bound is an error of its own kind, as soon as it is beyond', () => {
    const assembler = new KvAssembler({ snapshotBytesMax: 10, batchBytesMax: 5 })
    const part = { streamId: 1, last: false, sequence: 0, bytes: new Uint8Array(5) }
    assembler.accept({ ...part, type: 'kvSnapshot', first: true })
    assembler.accept({ ...part, type: 'kvSnapshot', first: false })
    expect(() => assembler.accept({ ...part, type: 'kvSnapshot', first: false })).toThrow(KvTooLargeError)
    const batches = new KvAssembler({ snapshotBytesMax: 10, batchBytesMax: 4 })
    expect(() => batches.accept({ ...part, type: 'kvBatch', first: true })).toThrow(/more than 4 bytes/)
  })

  test('parts that hold next to nothing are an error before they have cost much', () => {
    const assembler = new KvAssembler(roomy)
    const part = {
      type: 'kvSnapshot' as const,
      streamId: 1,
      last: false,
      sequence: 0,
      bytes: new Uint8Array(),
    }
    assembler.accept({ ...part, first: true })
    let count = 1
    expect(() => {
      for (; count < 10_000; count++) assembler.accept({ ...part, first: false })
    }).toThrow(/in 1025 parts for 0 bytes/)
  })

  test('a snapshot is asked for one payload at a time, no earlier than the frame that needs it', () => {
    let made = 0
    let isLeft = false
    const payloads = (function* () {
      try {
        for (;;) {
          made += 1
          yield new Uint8Array(100)
        }
      } finally {
        isLeft = true
      }
    })()
    const limits = { partBytesMax: 150, snapshotBytesMax: 1_000_000 }
    const frames = kvFrames(1, { type: 'snapshot', sequence: 0, payloads }, limits)
    for (let count = 1; count <= 10; count++) {
      expect(frames.next().value).toMatchObject({ first: count === 1, last: false })
      expect(made).toBeLessThanOrEqual(Math.ceil((count * 150) / 104) + 1)
    }
    frames.return(undefined)
    expect(isLeft).toBe(true)
  })

  test('a snapshot that turns out too large, in bytes or in payloads, is an error as soon as it does', () => {
    let made = 0
    const endless = function* (sizeBytes: number) {
      for (;;) {
        made += 1
        yield new Uint8Array(sizeBytes)
      }
    }
    const drain = (sizeBytes: number, snapshotBytesMax: number) => {
      const payloads = endless(sizeBytes)
      const limits = { partBytesMax: 65_536, snapshotBytesMax }
      for (const frame of kvFrames(1, { type: 'snapshot', sequence: 0, payloads }, limits))
        expect(frame.last).toBe(false)
    }
    expect(() => drain(96, 1_000)).toThrow(KvTooLargeError)
    expect(made).toBe(11)
    expect(() => drain(0, 1 << 30)).toThrow(/more than 1048576 payloads/)
  })

  test('what is joined does not keep the messages that brought it alive', () => {
    const chunk = new Uint8Array(65_536)
    const assembler = new KvAssembler(roomy)
    const frame = { streamId: 1, first: true, last: true, sequence: 0, bytes: chunk.subarray(0, 10) }
    const whole = assembler.accept({ ...frame, type: 'kvBatch' })
    expect(whole?.type === 'batch' && whole.payload.buffer.byteLength).toBe(10)
  })
})

function sizeOf(whole: KvWhole): number {
  if (whole.type === 'batch') return whole.payload.byteLength
  return whole.payloads.reduce((sum, payload) => sum + 4 + payload.byteLength, 0)
}

function plain(whole: KvWhole): unknown {
  return whole.type === 'snapshot'
    ? { ...whole, payloads: whole.payloads.map((payload) => [...payload]) }
    : { ...whole, payload: [...whole.payload] }
}
