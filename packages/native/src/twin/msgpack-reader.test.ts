import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MsgpackError, MsgpackReader } from './msgpack-reader.js'

const scalarArb = fc.oneof(
  fc.constant(null),
  fc.boolean(),
  fc.integer({ min: -(2 ** 53) + 1, max: 2 ** 53 - 1 }),
  fc.integer({ min: -200, max: 300 }),
  fc.double({ noNaN: true }),
  fc.string({ maxLength: 300 }),
  fc.uint8Array({ maxLength: 300 }),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
)
const valueArb = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    scalarArb,
    fc.array(tie('value'), { maxLength: 20 }),
    fc.dictionary(fc.string(), tie('value'), { maxKeys: 20 }),
  ),
})).value

const bytesOf = (value: unknown) => encode(value, { useBigInt64: true })

describe('reading msgpack in place', () => {
  test('skipping any value ends exactly at its end', () => {
    fc.assert(
      fc.property(valueArb, (value) => {
        const reader = new MsgpackReader(bytesOf(value))
        reader.skip()
        expect(reader.isAtEnd).toBe(true)
      }),
    )
  })

  test('integers of every width come back, as u64 by two’s complement', () => {
    const edges = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1]
    for (const edge of edges.flatMap((value) => (value === 0 ? [0] : [value, -value]))) {
      expect(new MsgpackReader(encode(edge)).smallInteger()).toBe(edge)
      expect(new MsgpackReader(encode(edge)).integerAsU64()).toBe(BigInt.asUintN(64, BigInt(edge)))
    }
    for (const edge of [2n ** 64n - 1n, 2n ** 63n, -(2n ** 63n), -5n]) {
      expect(new MsgpackReader(bytesOf(edge)).integerAsU64()).toBe(BigInt.asUintN(64, edge))
    }
    expect(() => new MsgpackReader(bytesOf(2n ** 60n)).smallInteger()).toThrow(MsgpackError)
  })

  test('strings and bytes of every length class come back', () => {
    for (const length of [0, 1, 31, 32, 255, 256, 65_535, 65_536]) {
      expect(new MsgpackReader(bytesOf('é'.repeat(length))).string()).toBe('é'.repeat(length))
      expect(new MsgpackReader(bytesOf(new Uint8Array(length).fill(7))).binary()).toEqual(
        new Uint8Array(length).fill(7),
      )
    }
  })

  test('a string longer than asked for reads as empty, by its bytes, and is passed over', () => {
    for (const [text, read] of [
      ['é'.repeat(32), 'é'.repeat(32)],
      [`${'é'.repeat(32)}e`, ''],
      ['', ''],
    ] as const) {
      const reader = new MsgpackReader(encode([text, 7]))
      reader.arrayLength()
      expect([reader.shortString(64), reader.smallInteger()]).toEqual([read, 7])
    }
  })

  test('bytes that end early are refused at every length', () => {
    fc.assert(
      fc.property(valueArb, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (value, share) => {
        const bytes = bytesOf(value)
        const reader = new MsgpackReader(bytes.subarray(0, Math.floor(bytes.length * share)))
        expect(() => reader.skip()).toThrow(MsgpackError)
      }),
    )
  })

  test.each([
    ['fixext 1', [0xd4, 5, 0]],
    ['fixext 16', [0xd8, 5, ...new Array<number>(16).fill(1)]],
    ['ext 8', [0xc7, 3, 5, 1, 2, 3]],
    ['ext 16', [0xc8, 0, 2, 5, 1, 2]],
    ['ext 32', [0xc9, 0, 0, 0, 1, 5, 1]],
  ])('an extension (%s) is passed over as a whole, and refused when cut off', (_, bytes) => {
    const reader = new MsgpackReader(Uint8Array.from(bytes))
    expect(reader.peek()).toBe('extension')
    reader.skip()
    expect(reader.isAtEnd).toBe(true)
    expect(() => new MsgpackReader(Uint8Array.from(bytes.slice(0, -1))).skip()).toThrow(MsgpackError)
  })

  test('random bytes are passed over or refused, never anything else', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
        const reader = new MsgpackReader(bytes)
        try {
          reader.skip()
          expect(reader.at).toBeLessThanOrEqual(bytes.length)
        } catch (error) {
          expect(error).toBeInstanceOf(MsgpackError)
        }
      }),
      { numRuns: 1000 },
    )
  })

  test('a container cannot claim more elements than there are bytes', () => {
    expect(() => new MsgpackReader(Uint8Array.of(0xdd, 0xff, 0xff, 0xff, 0xff, 1)).arrayLength()).toThrow(
      MsgpackError,
    )
    expect(() => new MsgpackReader(Uint8Array.of(0x82, 1, 1, 1)).mapLength()).toThrow(MsgpackError)
  })

  test('nesting is bounded', () => {
    expect(() => new MsgpackReader(new Uint8Array(10_000).fill(0x91)).skip()).toThrow(/nested/)
  })
})
