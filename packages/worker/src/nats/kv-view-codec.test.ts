import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { encodeHashes, kvViewCodec } from './kv-view-codec.js'

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const bytes = (text: string) => new Uint8Array(Buffer.from(text, 'hex'))

// routing.md 3.3
const arrayBatch = '93cb3ff80000000000009197ab426c6f636b53746f726564926fccdec098010203040506070804c0c0c0'
const mapBatch =
  '93cb3ff80000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573926fccdeb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0c0'
/** One block of the tokens 1 to 4, under the hash 111. */
const oneBlock = '93cb3ff80000000000009197ab426c6f636b53746f726564916fc0940102030404c0c0c0'
/** As a relay of ours marks that its view begins anew: readers see that all blocks are gone. */
const marker = `92cb3ff80000000000009182a474797065b0416c6c426c6f636b73436c6561726564ac696e666572615f65706f6368d906${Buffer.from('x -1 0').toString('hex')}`
const markerOfArrays = `92cb3ff80000000000009192b0416c6c426c6f636b73436c6561726564d906${Buffer.from('x -1 0').toString('hex')}`

describe('the value of the bucket', () => {
  test('is as the relay of Infera 0.1 writes it', () => {
    expect(hex(encodeHashes(BigUint64Array.of(1n, 2n ** 64n - 1n)))).toBe('9201cfffffffffffffffff')
    expect(hex(encodeHashes(new BigUint64Array()))).toBe('90')
    const codec = kvViewCodec({ blockSizeTokens: 4, ranks: [0] })
    codec.apply(0, bytes(oneBlock))
    expect(hex(codec.encode(0))).toBe('91cf341839abbe30be0b')
  })

  test.each([arrayBatch, mapBatch])(
    'is the chain of the tokens, ascending, whatever shape the engine writes',
    (batch) => {
      const codec = kvViewCodec({ blockSizeTokens: 4, ranks: [0, 1] })
      codec.apply(1, bytes(batch))
      expect(hex(codec.encode(1))).toBe('92cf341839abbe30be0bcf37b6de0623bdb5ca')
      expect(hex(codec.encode(0))).toBe('90')
      codec.clear(1)
      expect(hex(codec.encode(1))).toBe('90')
    },
  )

  test.each([marker, markerOfArrays])('is empty after the marker with which a relay begins anew', (text) => {
    const codec = kvViewCodec({ blockSizeTokens: 4, ranks: [0] })
    codec.apply(0, bytes(mapBatch))
    codec.apply(0, bytes(text))
    expect(hex(codec.encode(0))).toBe('90')
  })

  test('keeps its form for any number of any hashes', () => {
    const decode = (encoded: Uint8Array): bigint[] => {
      const view = new DataView(encoded.buffer, encoded.byteOffset, encoded.byteLength)
      let at = 0
      const first = view.getUint8(at++)
      let count = first & 0x0f
      if (first === 0xdc) count = view.getUint16(1)
      if (first === 0xdd) count = view.getUint32(1)
      at += first === 0xdc ? 2 : first === 0xdd ? 4 : 0
      return Array.from({ length: count }, () => {
        const tag = view.getUint8(at++)
        if (tag < 0x80) return BigInt(tag)
        const size = 1 << (tag - 0xcc)
        let value = 0n
        for (let byte = 0; byte < size; byte++) value = value * 256n + BigInt(view.getUint8(at++))
        return value
      })
    }
    fc.assert(
      fc.property(fc.array(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { maxLength: 40 }), (hashes) => {
        expect(decode(encodeHashes(BigUint64Array.from(hashes)))).toEqual(hashes)
      }),
    )
    const many = BigUint64Array.from({ length: 70_000 }, (_, index) => BigInt(index) * 7n)
    expect(decode(encodeHashes(many))).toEqual([...many])
  })
})
