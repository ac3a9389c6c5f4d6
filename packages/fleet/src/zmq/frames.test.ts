import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeSequence, encodeEnd, encodeSequence, parseLive, parseReplay } from './frames.js'

const bytes = (hex: string) => Uint8Array.from(Buffer.from(hex, 'hex'))
const topic = Uint8Array.from(Buffer.from('kv-events'))
const none = new Uint8Array()
const frameArb = fc.oneof(fc.uint8Array({ maxLength: 12 }), fc.uint8Array({ minLength: 8, maxLength: 8 }))

describe('live messages', () => {
  test('vLLM and SGLang put an 8 byte number in big endian between topic and payload', () => {
    expect(parseLive([topic, bytes('0000000000000102'), bytes('93c0')], 100)).toEqual({
      sequence: 0x102,
      payload: bytes('93c0'),
    })
  })

  test('ATOM sends topic and payload alone', () => {
    expect(parseLive([topic, bytes('93c0')], 100)).toEqual({ sequence: undefined, payload: bytes('93c0') })
  })

  test('the payload is the last frame and the number the one before, whatever comes first', () => {
    const frames = [topic, bytes('ff'), bytes('0000000000000001'), bytes('93')]
    expect(parseLive(frames, 100)).toEqual({ sequence: 1, payload: bytes('93') })
  })

  test.each<[string, Uint8Array[]]>([
    ['no frame', []],
    ['one frame', [topic]],
    ['a number of 7 bytes', [topic, bytes('00000000000001'), none]],
    ['a number of 9 bytes', [topic, bytes('000000000000000001'), none]],
    ['a number beyond what can be counted', [topic, bytes('0020000000000000'), none]],
    ['the end marker', [topic, encodeEnd(), none]],
    ['nine frames', Array.from({ length: 9 }, () => bytes('0000000000000001'))],
    ['a payload that is too large', [topic, new Uint8Array(101)]],
  ])('%s is no batch', (_name, frames) => {
    expect(parseLive(frames, 100)).toBeUndefined()
  })

  test('a batch does not keep the chunk alive that it lay in', () => {
    const chunk = new Uint8Array(65_536)
    const batch = parseLive([topic, chunk.subarray(8, 16), chunk.subarray(16, 20)], 100)
    expect(batch?.payload.buffer.byteLength).toBe(4)
  })

  test('random frames are a batch with a payload of theirs, or nothing', () => {
    fc.assert(
      fc.property(fc.array(frameArb, { maxLength: 10 }), (frames) => {
        const batch = parseLive(frames, 10)
        if (!batch) return
        expect(batch.payload).toEqual(frames.at(-1))
        if (batch.sequence !== undefined)
          expect(encodeSequence(batch.sequence)).toEqual(Buffer.from(frames.at(-2) ?? []))
      }),
    )
  })
})

describe('replayed messages', () => {
  test.each<[string, Uint8Array[]]>([
    ['after a delimiter', [none, encodeSequence(5), bytes('93')]],
    ['without one', [encodeSequence(5), bytes('93')]],
    ['after a topic', [none, topic, encodeSequence(5), bytes('93')]],
  ])('a batch is read %s', (_name, frames) => {
    expect(parseReplay(frames, 100)).toEqual({ sequence: 5, payload: bytes('93') })
  })

  test('the end has the number -1 and no payload', () => {
    expect(encodeEnd()).toEqual(Buffer.from('ffffffffffffffff', 'hex'))
    expect(parseReplay([none, encodeEnd(), none], 100)).toBe('end')
    expect(parseReplay([none, encodeEnd(), bytes('93')], 100)).toBeUndefined()
  })

  test('random frames are a batch, the end, or nothing', () => {
    fc.assert(
      fc.property(fc.array(frameArb, { maxLength: 10 }), (frames) => {
        const result = parseReplay(frames, 10)
        if (result && result !== 'end') expect(result.payload).toEqual(frames.at(-1))
      }),
    )
  })
})

test('numbers come back as they were, up to the largest safe integer', () => {
  fc.assert(
    fc.property(fc.maxSafeNat(), (sequence) => {
      expect(decodeSequence(encodeSequence(sequence))).toBe(sequence)
    }),
  )
})
