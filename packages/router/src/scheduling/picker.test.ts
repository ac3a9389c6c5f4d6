import { seededRandom } from '@infera/fleet'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { pickAnyLowest, pickFirstLowest } from './picker.js'

// Few values, so that ties in one part and in all parts are common.
const keysArb = fc.array(fc.tuple(fc.nat(2), fc.nat(2)), { minLength: 1, maxLength: 12 })

/** The obvious way: sort by the first part, then by the second. */
function lowestOf(keys: readonly (readonly [number, number])[]): number[] {
  const [best] = [...keys].sort((one, other) => one[0] - other[0] || one[1] - other[1])
  return [...keys.keys()].filter((at) => keys[at]?.[0] === best?.[0] && keys[at]?.[1] === best?.[1])
}

describe('the picker', () => {
  test('takes the first of the lowest', () => {
    fc.assert(
      fc.property(keysArb, (keys) => {
        expect(pickFirstLowest(keys)).toBe(lowestOf(keys)[0])
      }),
    )
  })

  test('takes each of the lowest at times, and no other', () => {
    fc.assert(
      fc.property(keysArb, fc.integer(), (keys, seed) => {
        const random = seededRandom(seed)
        const picked = new Set(Array.from({ length: 300 }, () => pickAnyLowest(keys, random)))
        expect([...picked].sort((one, other) => one - other)).toEqual(lowestOf(keys))
      }),
      { numRuns: 30 },
    )
  })

  test('stays in bounds at the ends of chance', () => {
    const keys = [[1], [0], [0]]
    expect([pickAnyLowest(keys, () => 0), pickAnyLowest(keys, () => 1 - Number.EPSILON)]).toEqual([1, 2])
  })
})
