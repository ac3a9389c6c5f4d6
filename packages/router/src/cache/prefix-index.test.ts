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

  remove(target: number, hash: bigint): void {
    this.#holders.get(hash)?.delete(target)
  }

  clear(target: number): void {
    for (const targets of this.#holders.values()) targets.delete(target)
  }

  overlap(target: number, query: readonly bigint[]): number {
    const miss = query.findIndex((hash) => !this.has(target, hash))
    return miss === -1 ? query.length : miss
  }
}

const targetCount = 5
// Spread over the parts by their top bits, and crowded within them.
const hashes = Array.from(
  { length: 48 },
  (_, index) => (BigInt(index % 6) << 27n) + BigInt(index) + (1n << 40n),
)
const hashArb = fc.constantFrom(...hashes)
const targetArb = fc.nat(targetCount - 1)
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
  test('answers as an index of plain sets does, after any history', () => {
    fc.assert(
      fc.property(
        fc.array(stepArb, { maxLength: 300 }),
        fc.integer({ min: 1, max: 150 }),
        (steps, blocksMax) => {
          const index = new PrefixIndex({ blocksMax })
          const twin = new TwinIndex(blocksMax)
          const targets = Array.from({ length: targetCount }, () => index.addTarget())
          for (const step of steps) {
            const target = 'target' in step ? (targets[step.target] as number) : 0
            if (step.type === 'add')
              expect(index.add(target, step.hash)).toBe(twin.add(step.target, step.hash))
            else if (step.type === 'remove') {
              index.remove(target, step.hash)
              twin.remove(step.target, step.hash)
            } else if (step.type === 'clear') {
              index.clear(target)
              twin.clear(step.target)
            } else if (step.type === 'renew') {
              index.removeTarget(target)
              targets[step.target] = index.addTarget()
              twin.clear(step.target)
            } else if (step.type === 'sweep') index.sweep(step.slots)
            else {
              const overlaps = matchOf(index, step.query)
              for (const [position, number] of targets.entries()) {
                expect(overlaps[number]).toBe(twin.overlap(position, step.query))
              }
            }
            expect(index.pairCount).toBe(twin.pairCount)
          }
          for (const [position, number] of targets.entries()) {
            for (const hash of hashes) expect(index.has(number, hash)).toBe(twin.has(position, hash))
          }
        },
      ),
      { numRuns: 300 },
    )
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
