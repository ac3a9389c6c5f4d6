import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { RecentLoad } from './recent-load.js'

describe('recent load', () => {
  test('a prompt that is wholly held adds nothing, one of unknown length adds one', () => {
    const recent = new RecentLoad()
    recent.charge('a', 10, 10)
    recent.charge('b', 0, 0)
    expect([recent.of('a'), recent.of('b')]).toEqual([0, 1])
  })

  test('everybody fades with every pick, the picked one before it is charged', () => {
    const recent = new RecentLoad()
    recent.charge('a', 10, 0)
    recent.charge('b', 10, 8)
    recent.charge('a', 10, 9)
    expect(recent.of('a')).toBeCloseTo(10 * 0.97 ** 2 + 1, 12)
    expect(recent.of('b')).toBeCloseTo(2 * 0.97, 12)
  })

  test('is the faded sum of all that was charged, but for crumbs', () => {
    const pickArb = fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.nat(20), fc.nat(20))
    fc.assert(
      fc.property(fc.array(pickArb, { maxLength: 100, size: 'max' }), (picks) => {
        const recent = new RecentLoad()
        for (const [key, blocks, held] of picks) recent.charge(key, blocks, Math.min(blocks, held))
        for (const key of ['a', 'b', 'c']) {
          let sum = 0
          for (const [at, [picked, blocks, held]] of picks.entries()) {
            const charged = blocks === 0 ? 1 : blocks - Math.min(blocks, held)
            if (picked === key) sum += charged * 0.97 ** (picks.length - 1 - at)
          }
          expect(Math.abs(recent.of(key) - sum)).toBeLessThan(0.002)
        }
      }),
    )
  })

  test('a forgotten target starts at nothing, the others go on', () => {
    const recent = new RecentLoad()
    recent.charge('a', 5, 0)
    recent.charge('b', 5, 0)
    recent.forget('a')
    expect([recent.of('a'), recent.of('b')]).toEqual([0, 5])
  })
})
