import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeKvEpoch, encodeKvEpoch } from './kv-epoch.js'

test('the marker is a batch of the engine’s own kind: all blocks are gone', () => {
  const epoch = { instance: 'abc', sequence: 41, count: 3 }
  const hexOf = (shape: 'map' | 'array') => Buffer.from(encodeKvEpoch(epoch, shape, 1.5)).toString('hex')
  const cleared = 'b0416c6c426c6f636b73436c6561726564'
  const text = 'd9086162632034312033'
  // [1.5, [{"type": "AllBlocksCleared", "infera_epoch": "abc 41 3"}]] and [1.5, [["AllBlocksCleared", "abc 41 3"]]]
  expect(hexOf('map')).toBe(`92cb3ff80000000000009182a474797065${cleared}ac696e666572615f65706f6368${text}`)
  expect(hexOf('array')).toBe(`92cb3ff80000000000009192${cleared}${text}`)
})

test('what is written is read, and what is not is not', () => {
  const epochArb = fc.record({
    instance: fc.stringMatching(/^[\w-]{1,64}$/),
    sequence: fc.integer({ min: -1, max: 999_999_999 }),
    count: fc.nat(999_999),
  })
  fc.assert(
    fc.property(
      epochArb,
      fc.constantFrom('map', 'array'),
      fc.double(),
      fc.nat(200),
      (epoch, shape, time, cut) => {
        const bytes = encodeKvEpoch(epoch, shape, time)
        expect(decodeKvEpoch(bytes)).toEqual(epoch)
        if (cut < bytes.byteLength) expect(decodeKvEpoch(bytes.subarray(0, cut))).toBeUndefined()
      },
    ),
  )
  fc.assert(
    fc.property(fc.uint8Array(), (noise) => {
      expect(decodeKvEpoch(noise)).toBeUndefined()
    }),
  )
})

test('an engine’s own clearing of its cache is no marker', () => {
  // [1.0, [{"type": "AllBlocksCleared"}]] and [1.0, [["AllBlocksCleared"]]]
  for (const hex of [
    '92cb3ff00000000000009181a474797065b0416c6c426c6f636b73436c6561726564',
    '92cb3ff00000000000009191b0416c6c426c6f636b73436c6561726564',
  ]) {
    expect(decodeKvEpoch(Buffer.from(hex, 'hex'))).toBeUndefined()
  }
})
