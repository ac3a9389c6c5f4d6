import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { PrefixIndex } from './prefix-index.js'

/** The obvious index: a set of targets per block. */
class TwinIndex {
  readonly #holders = new Map<bigint, Set<number>>()

  constructor(readonly blocksMax: number) {}

  get pairCount(): number {
    let count = 0
    for (const targets of this.#holders.values()) count += targets.size
    return count
  }

  has(target: number, hash: bigint): boolean {
    return this.#holders.get(hash)?.has(target) ?? false
  }

  add(target: number, hash: bigint): boolean {
    if (this.has(target, hash)) return true
    if (this.pairCount >= this.blocksMax) return false
    const targets = this.#holders.get(hash) ?? new Set()
    this.#holders.set(hash, targets.add(target))
    return true
  }

  remove(target: number, hash: bigint): boolean {
    return this.#holders.get(hash)?.delete(target) ?? false
  }

  clear(target: number): void {
    for (const targets of this.#holders.values()) targets.delete(target)
  }

  overlap(target: number, query: readonly bigint[]): number {
    const miss = query.findIndex((hash) => !this.has(target, hash))
    return miss === -1 ? query.length : miss
  }
}

// Spread over the sub-tables by their top byte and crowded within them, equal in one half, and zero.
const hashes = Array.from({ length: 48 }, (_, index) =>
  index % 3 === 0
    ? BigInt(index)
    : BigInt.asUintN(64, BigInt(index % 12) * 0x9e37_79b9_7f4a_7c15n + BigInt(index)),
)
const hashArb = fc.constantFrom(...hashes)
const targetArb = fc.nat(79)
const stepArb = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ type: fc.constant('add' as const), target: targetArb, hash: hashArb }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ type: fc.constant('remove' as const), target: targetArb, hash: hashArb }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('clear' as const), target: targetArb }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('renew' as const), target: targetArb }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('sweep' as const), slots: fc.nat(40) }) },
  {
    weight: 3,
    arbitrary: fc.record({ type: fc.constant('match' as const), query: fc.array(hashArb, { maxLength: 6 }) }),
  },
)

function matchOf(index: PrefixIndex, query: readonly bigint[]): Uint32Array {
  const overlaps = new Uint32Array(index.targetCount)
  index.match(BigUint64Array.from(query), overlaps)
  return overlaps
}

describe('the prefix index', () => {
  // Beyond 32 targets a set of holders is wider than one word; clears and removals leave dead holders beside the live.
  test.each([1, 5, 40, 80])(
    'answers as an index of plain sets does, after any history of %i targets',
    (count) => {
      fc.assert(
        fc.property(
          fc.array(stepArb, { maxLength: 300, size: 'max' }),
          fc.integer({ min: 1, max: 150 }),
          fc.nat(3),
          (steps, blocksLeft, sharedCount) => {
            const blocksMax = blocksLeft + count * sharedCount
            const index = new PrefixIndex({ blocksMax })
            const twin = new TwinIndex(blocksMax)
            const targets = Array.from({ length: count }, () => index.addTarget())
            // All hold the first blocks, so that blocks with very many holders occur.
            for (const hash of hashes.slice(0, sharedCount)) {
              for (const [position, number] of targets.entries()) {
                expect(index.add(number, hash)).toBe(twin.add(position, hash))
              }
            }
            for (const step of steps) {
              const position = 'target' in step ? step.target % count : 0
              const target = targets[position] as number
              if (step.type === 'add')
                expect(index.add(target, step.hash)).toBe(twin.add(position, step.hash))
              else if (step.type === 'remove') {
                expect(index.remove(target, step.hash)).toBe(twin.remove(position, step.hash))
              } else if (step.type === 'clear') {
                index.clear(target)
                twin.clear(position)
              } else if (step.type === 'renew') {
                index.removeTarget(target)
                targets[position] = index.addTarget()
                twin.clear(position)
              } else if (step.type === 'sweep') index.sweep(step.slots)
              else {
                const overlaps = matchOf(index, step.query)
                for (const [other, number] of targets.entries()) {
                  expect(overlaps[number]).toBe(twin.overlap(other, step.query))
                }
              }
              expect(index.pairCount).toBe(twin.pairCount)
            }
            for (const [position, number] of targets.entries()) {
              expect(index.blocksOf(number)).toBe(hashes.filter((hash) => twin.has(position, hash)).length)
              for (const hash of hashes) expect(index.has(number, hash)).toBe(twin.has(position, hash))
            }
          },
        ),
        { numRuns: count > 32 ? 40 : 100 },
      )
    },
  )

  test('a query may be a view into a larger buffer, and may be empty', () => {
    const index = new PrefixIndex({ blocksMax: 100 })
    const target = index.addTarget()
    for (const hash of [2n, 3n]) index.add(target, hash)
    const overlaps = new Uint32Array(1)
    index.match(BigUint64Array.of(1n, 2n, 3n, 4n).subarray(1), overlaps)
    expect(overlaps[target]).toBe(2)
    index.match(new BigUint64Array(0), overlaps)
    expect(overlaps[target]).toBe(0)
  })

  test('an output that is too short is refused', () => {
    const index = new PrefixIndex({ blocksMax: 100 })
    index.addTarget()
    expect(() => index.match(BigUint64Array.of(1n), new Uint32Array(0))).toThrow(/1 targets/)
  })

  test('a removed target reads as empty, takes nothing, and may be removed again', () => {
    const index = new PrefixIndex({ blocksMax: 100 })
    const [target, other] = [index.addTarget(), index.addTarget()]
    for (const each of [target, other]) index.add(each, 1n)
    for (let again = 0; again < 2; again++) index.removeTarget(target)
    index.clear(target)
    expect([index.add(target, 2n), index.remove(target, 1n), index.has(target, 1n)]).toEqual([
      false,
      false,
      false,
    ])
    expect([index.blocksOf(target), index.pairCount]).toEqual([0, 1])
    const overlaps = matchOf(index, [1n])
    expect([overlaps[target], overlaps[other]]).toEqual([0, 1])
    // Removed twice, the number is given out once.
    expect(new Set([index.addTarget(), index.addTarget()]).size).toBe(2)
  })

  test('a target that takes the number of a removed one does not inherit its blocks', () => {
    const index = new PrefixIndex({ blocksMax: 1000 })
    const target = index.addTarget()
    for (const hash of hashes) index.add(target, hash)
    index.removeTarget(target)
    const next = index.addTarget()
    expect([next, index.blocksOf(next)]).toEqual([target, 0])
    expect(hashes.filter((hash) => index.has(next, hash))).toEqual([])
  })

  test('a target cleared over and over neither piles up memory nor harms the others', () => {
    const index = new PrefixIndex({ blocksMax: 100_000 })
    const [flapping, steady] = [index.addTarget(), index.addTarget()]
    for (let hash = 0n; hash < 50n; hash++) index.add(steady, hash)
    for (let round = 0; round < 5000; round++) {
      index.add(flapping, BigInt(round % 60))
      index.clear(flapping)
    }
    expect([index.pairCount, matchOf(index, [0n, 1n, 2n])[steady]]).toEqual([50, 3])
    expect(index.sizeBytes).toBeLessThan(1_000_000)
  })

  test('memory returns whether blocks are removed one by one, cleared, or leave with their target', () => {
    const index = new PrefixIndex({ blocksMax: 1_000_000 })
    const startBytes = index.sizeBytes
    const hashOf = (block: number) => BigInt.asUintN(64, BigInt(block) * 0x9e37_79b9_7f4a_7c15n)
    const targets = Array.from({ length: 8 }, () => index.addTarget())
    for (const [position, target] of targets.entries()) {
      for (let block = 0; block < 6000; block++) index.add(target, hashOf(block + position * 3000))
    }
    expect(index.sizeBytes).toBeGreaterThan(2 * startBytes)
    for (const [position, target] of targets.entries()) {
      if (position % 3 === 0) index.clear(target)
      else if (position % 3 === 1) index.removeTarget(target)
      else for (let block = 0; block < 6000; block++) index.remove(target, hashOf(block + position * 3000))
    }
    index.sweep(10_000_000)
    expect([index.pairCount, index.blockCount]).toEqual([0, 0])
    expect(index.sizeBytes).toBeLessThan(1.1 * startBytes)
  })

  test('the sub-table in which a sweep ends is no wider afterwards than a new one', () => {
    const index = new PrefixIndex({ blocksMax: 10_000 })
    const startBytes = index.sizeBytes
    const target = index.addTarget()
    for (let hash = 0n; hash < 5000n; hash++) index.add(target, hash)
    index.clear(target)
    index.sweep(1_000_000)
    expect(index.sizeBytes).toBe(startBytes)
  })

  test('a hole ends the overlap even when later blocks are there', () => {
    const index = new PrefixIndex({ blocksMax: 100 })
    const target = index.addTarget()
    for (const hash of [1n, 2n, 4n, 5n]) index.add(target, hash)
    expect(matchOf(index, [1n, 2n, 3n, 4n, 5n])[target]).toBe(2)
    expect(matchOf(index, [9n, 1n])[target]).toBe(0)
  })

  test('at its bound it refuses, counts, and still takes what it has already', () => {
    const index = new PrefixIndex({ blocksMax: 2 })
    const target = index.addTarget()
    expect([1n, 2n, 3n, 1n].map((hash) => index.add(target, hash))).toEqual([true, true, false, true])
    expect(index.refusedCount).toBe(1)
    index.remove(target, 1n)
    expect(index.add(target, 3n)).toBe(true)
  })

  test('what a cleared target held makes room at once', () => {
    const index = new PrefixIndex({ blocksMax: 1000 })
    const [one, other] = [index.addTarget(), index.addTarget()]
    for (let hash = 0n; hash < 1000n; hash++) index.add(one, hash << 20n)
    index.clear(one)
    expect(index.pairCount).toBe(0)
    for (let hash = 0n; hash < 1000n; hash++) expect(index.add(other, hash << 20n)).toBe(true)
    expect(index.refusedCount).toBe(0)
  })

  test('clearing a target with very many blocks leaves the others alone', () => {
    const index = new PrefixIndex({ blocksMax: 1_000_000 })
    const [cleared, other] = [index.addTarget(), index.addTarget()]
    for (let hash = 0n; hash < 50_000n; hash++)
      index.add(cleared, (hash * 0x9e37_79b9_7f4a_7c15n) & 0xffff_ffff_ffff_ffffn)
    for (let hash = 0n; hash < 100n; hash++)
      index.add(other, (hash * 0x9e37_79b9_7f4a_7c15n) & 0xffff_ffff_ffff_ffffn)
    index.clear(cleared)
    expect([index.blocksOf(cleared), index.blocksOf(other)]).toEqual([0, 100])
  })

  test('storing and removing unique chains over and over does not grow memory', () => {
    const index = new PrefixIndex({ blocksMax: 1_000_000 })
    const targets = [index.addTarget(), index.addTarget(), index.addTarget()]
    const round = (seed: bigint) => {
      const chain = Array.from({ length: 500 }, (_, block) =>
        BigInt.asUintN(64, (seed * 500n + BigInt(block)) * 0x9e37_79b9_7f4a_7c15n),
      )
      for (const target of targets) for (const hash of chain) index.add(target, hash)
      for (const target of targets) for (const hash of chain) index.remove(target, hash)
    }
    const startBytes = index.sizeBytes
    for (let seed = 0n; seed < 40n; seed++) round(seed)
    expect([index.pairCount, index.blockCount]).toEqual([0, 0])
    expect(index.sizeBytes).toBeLessThanOrEqual(startBytes * 1.1)
  })

  test('targets that come and go do not use up numbers', () => {
    const index = new PrefixIndex({ blocksMax: 1000 })
    const other = index.addTarget()
    for (let round = 0n; round < 200n; round++) {
      const target = index.addTarget()
      expect(index.blocksOf(target)).toBe(0)
      index.add(target, round)
      index.removeTarget(target)
    }
    expect(index.targetCount).toBe(2)
    expect(index.blocksOf(other)).toBe(0)
  })
})
