import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeKvView } from './kv-view-value.js'

const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'))
const read = (hex: string) => [...(decodeKvView(bytes(hex), 1_000) ?? ['none'])]

test('values of the specification are read', () => {
  expect(read('9201cfffffffffffffffff')).toEqual([1n, 2n ** 64n - 1n])
  expect(read('91cf341839abbe30be0b')).toEqual([0x341839abbe30be0bn])
  expect(read('90')).toEqual([])
  // Negative numbers are the same bits.
  expect(read('93ffd3fffffffffffffffed0f0')).toEqual([2n ** 64n - 1n, 2n ** 64n - 2n, 2n ** 64n - 16n])
})

test('whatever a writer makes of numbers is read back', () => {
  const hash = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n })
  fc.assert(
    fc.property(fc.array(fc.oneof(hash, fc.bigInt({ min: 0n, max: 300n })), { maxLength: 50 }), (hashes) => {
      const written = hashes.map((each) => (each < 2n ** 32n ? Number(each) : each))
      const encoded = encode(written, { useBigInt64: true })
      expect([...(decodeKvView(encoded, 1_000) ?? [])]).toEqual(hashes)
    }),
  )
})

test('anything else is no view, and claims of length take no memory', () => {
  for (const hex of [
    '',
    '80',
    'dd7fffffff',
    'dcffff01',
    '92a161',
    '91cb3ff8000000000000',
    '9101ff',
    '92cf00',
  ]) {
    expect(read(hex)).toEqual(['none'])
  }
  expect(decodeKvView(bytes('9201cfffffffffffffffff'), 1)).toBeUndefined()
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (random) => {
      const view = decodeKvView(random, 1_000)
      if (view) expect(view.length).toBeLessThanOrEqual(random.byteLength)
    }),
  )
})
