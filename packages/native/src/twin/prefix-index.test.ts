import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { historyArb, indexOptionsArb, viewOptionsArb } from '../../test/support/histories.js'
import { play } from '../../test/support/lockstep.js'
import { seal } from '../../test/support/snapshots.js'
import type { NativeError } from '../errors.js'
import { tiers } from '../ports.js'
import { TwinPrefixIndex } from './prefix-index.js'

const { device, host, disk, remote } = tiers
const list = (...hashes: bigint[]) => BigUint64Array.from(hashes)
const spread = (block: number) => BigInt.asUintN(64, BigInt(block) * 0x9e37_79b9_7f4a_7c15n)
const chainOf = (from: number, count: number) =>
  BigUint64Array.from({ length: count }, (_, at) => spread(from + at))

function overlapsOf(index: TwinPrefixIndex, hashes: BigUint64Array, levels = 1, nowMs = 0): number[][] {
  const overlaps = new Uint32Array(index.targetCount * levels)
  index.match(hashes, overlaps, { nowMs, levels })
  return Array.from({ length: levels }, (_, level) => [
    ...overlaps.subarray(level * index.targetCount, (level + 1) * index.targetCount),
  ])
}

function codeOf(call: () => void): string {
  try {
    call()
  } catch (error) {
    return (error as NativeError).code
  }
  return 'none'
}

function swept(index: TwinPrefixIndex): TwinPrefixIndex {
  while (index.sweep(1_000_000));
  return index
}

describe('the twin of the index', () => {
  test('answers as plain maps do, after any history of events, targets, optimistic blocks and clocks', () => {
    fc.assert(
      fc.property(indexOptionsArb, viewOptionsArb, historyArb, (options, view, history) => {
        play([(each) => new TwinPrefixIndex(each)], options, view, history)
      }),
      { numRuns: 100 },
    )
  })

  // Beyond 32 targets a set of holders is wider than one word; clears and removals leave dead holders beside the live.
  test.each([1, 5, 40, 80])('tells %i targets apart through any history of single blocks', (count) => {
    const hashes = Array.from({ length: 48 }, (_, at) =>
      at % 3 === 0 ? BigInt(at) : spread(at % 12) + BigInt(at),
    )
    const targetArb = fc.nat(count - 1)
    const hashArb = fc.nat(hashes.length - 1)
    const stepArb = fc.record({
      type: fc.constantFrom(
        'retain',
        'retain',
        'retain',
        'retain',
        'release',
        'release',
        'clear',
        'renew',
        'sweep',
      ),
      target: targetArb,
      hash: hashArb,
    })
    fc.assert(
      fc.property(fc.array(stepArb, { maxLength: 300, size: 'max' }), fc.nat(3), (steps, sharedCount) => {
        const index = new TwinPrefixIndex()
        const targets = Array.from({ length: count }, () => index.addTarget())
        const shared = BigUint64Array.from(hashes.slice(0, sharedCount))
        const counts = targets.map(() => new Map(Array.from(shared, (hash) => [hash, 1])))
        for (const target of targets) index.retain(target, device, shared)
        for (const { type, target: place, hash: at } of steps) {
          const [target, hash, held] = [targets[place]!, BigInt.asUintN(64, hashes[at]!), counts[place]!]
          const references = held.get(hash) ?? 0
          if (type === 'retain') {
            expect(index.retain(target, device, list(hash))).toBe(1)
            held.set(hash, references + 1)
          } else if (type === 'release') {
            expect(index.release(target, device, list(hash))).toBe(references === 1 ? 1 : 0)
            if (references > 1) held.set(hash, references - 1)
            else held.delete(hash)
          } else if (type === 'clear') {
            index.clear(target)
            held.clear()
          } else if (type === 'renew') {
            index.removeTarget(target)
            expect(index.addTarget()).toBe(target)
            held.clear()
          } else index.sweep(at)
        }
        const all = hashes.map((hash) => BigInt.asUintN(64, hash))
        for (const [place, target] of targets.entries()) {
          expect(index.blocksOf(target, device)).toBe(counts[place]!.size)
          expect(all.map((hash) => index.refCount(target, device, hash))).toEqual(
            all.map((hash) => counts[place]!.get(hash) ?? 0),
          )
        }
        const [overlaps] = overlapsOf(index, BigUint64Array.from(all))
        const miss = (held: Map<bigint, number>) => all.findIndex((hash) => !held.has(hash))
        expect(overlaps).toEqual(counts.map((held) => (miss(held) < 0 ? all.length : miss(held))))
      }),
      { numRuns: count > 32 ? 40 : 100 },
    )
  })

  test('a query may be a view into a larger buffer, and may be empty', () => {
    const index = new TwinPrefixIndex()
    index.retain(index.addTarget(), device, list(2n, 3n))
    expect(overlapsOf(index, list(1n, 2n, 3n, 4n).subarray(1))).toEqual([[2]])
    expect(overlapsOf(index, list())).toEqual([[0]])
  })

  test('a level counts its tier and all faster ones, and is never below the level before', () => {
    const index = new TwinPrefixIndex()
    const target = index.addTarget()
    index.retain(target, device, list(1n, 4n))
    index.retain(target, host, list(2n))
    index.retain(target, remote, list(1n, 3n))
    expect(overlapsOf(index, list(1n, 2n, 3n, 4n, 5n), 4)).toEqual([[1], [2], [2], [4]])
    index.release(target, device, list(1n))
    expect(overlapsOf(index, list(1n, 2n, 3n, 4n, 5n), 4)).toEqual([[0], [0], [0], [4]])
  })

  test('an optimistic block counts as a device block until the last call for it expired', () => {
    const index = new TwinPrefixIndex({ optimisticTtlMs: 100 })
    const target = index.addTarget()
    expect(index.addOptimistic(target, list(1n, 2n), 1000)).toBe(2)
    expect(index.addOptimistic(target, list(1n), 1050)).toBe(1)
    expect([1099, 1100, 1149, 1150].map((nowMs) => overlapsOf(index, list(1n, 2n, 3n), 1, nowMs)[0])).toEqual(
      [[2], [1], [1], [0]],
    )
    expect(index.stats()).toMatchObject({ optimisticBlocks: 0, pairs: 0, blocks: 0 })
  })

  test('optimistic blocks of a cleared target are gone at once, and hurt nobody when their time comes', () => {
    const index = new TwinPrefixIndex({ optimisticTtlMs: 100 })
    const target = index.addTarget()
    index.addOptimistic(target, list(1n), 0)
    index.clear(target)
    expect(overlapsOf(index, list(1n))).toEqual([[0]])
    swept(index)
    // The next target carries the number inside that the cleared one had.
    const next = index.addTarget()
    for (const each of [target, next]) index.addOptimistic(each, list(1n), 50)
    expect(overlapsOf(index, list(1n), 1, 120)).toEqual([[1, 1]])
  })

  test('a clock that goes back is read as standing still', () => {
    const index = new TwinPrefixIndex({ optimisticTtlMs: 100 })
    const target = index.addTarget()
    index.addOptimistic(target, list(1n), 5000)
    expect(overlapsOf(index, list(1n), 1, 5100)).toEqual([[0]])
    index.addOptimistic(target, list(1n), 1000)
    expect([5099, 5100].map((nowMs) => overlapsOf(index, list(1n), 1, nowMs)[0])).toEqual([[1], [0]])
  })

  test.each([0, -1, 5, 1.5])('%d levels are refused', (levels) => {
    const index = new TwinPrefixIndex()
    expect(codeOf(() => index.match(list(), new Uint32Array(9), { nowMs: 0, levels }))).toBe(
      'INFERA_NATIVE_OPTIONS',
    )
  })

  test.each([-1, Number.NaN])('a time of %d is refused', (nowMs) => {
    const index = new TwinPrefixIndex()
    expect(codeOf(() => index.match(list(), new Uint32Array(9), { nowMs }))).toBe('INFERA_NATIVE_OPTIONS')
    expect(codeOf(() => index.addOptimistic(0, list(), nowMs))).toBe('INFERA_NATIVE_OPTIONS')
  })

  test('an output that is too short is refused, at each number of levels', () => {
    const index = new TwinPrefixIndex()
    index.addTarget()
    index.addTarget()
    const room = (length: number, levels: number) =>
      codeOf(() => index.match(list(1n), new Uint32Array(length), { nowMs: 0, levels }))
    expect([room(1, 1), room(2, 1), room(7, 4), room(8, 4)]).toEqual([
      'INFERA_NATIVE_BUFFER',
      'none',
      'INFERA_NATIVE_BUFFER',
      'none',
    ])
  })

  test('a removed target reads as empty, takes nothing, and may be removed again', () => {
    const index = new TwinPrefixIndex()
    const [target, other] = [index.addTarget(), index.addTarget()]
    for (const each of [target, other]) index.retain(each, device, list(1n))
    for (let again = 0; again < 2; again++) index.removeTarget(target)
    index.clear(target)
    expect([
      index.retain(target, device, list(2n)),
      index.release(target, device, list(1n)),
      index.addOptimistic(target, list(1n), 0),
    ]).toEqual([0, 0, 0])
    expect([index.has(target, device, 1n), index.blocksOf(target, device), index.stats().pairs]).toEqual([
      false,
      0,
      1,
    ])
    expect(overlapsOf(index, list(1n))).toEqual([[0, 1]])
    // Removed twice, the number is given out once.
    expect([index.addTarget(), index.addTarget()]).toEqual([target, 2])
  })

  test('a target that takes the number of a removed one does not inherit its blocks', () => {
    const index = new TwinPrefixIndex()
    const target = index.addTarget()
    index.retain(target, disk, chainOf(0, 100))
    index.removeTarget(target)
    expect([index.addTarget(), index.blocksOf(target, disk), index.has(target, disk, spread(1))]).toEqual([
      target,
      0,
      false,
    ])
  })

  test('targets that come and go do not use up numbers, and as many as there may be are taken', () => {
    const index = new TwinPrefixIndex({ targetsMax: 2 })
    index.addTarget()
    for (let round = 0; round < 200; round++) {
      const target = index.addTarget()
      index.retain(target, device, list(BigInt(round)))
      expect(codeOf(() => index.addTarget())).toBe('INFERA_NATIVE_BOUND')
      index.removeTarget(target)
    }
    expect(index.targetCount).toBe(2)
  })

  test('a target cleared over and over neither piles up memory nor harms the others', () => {
    const index = new TwinPrefixIndex()
    const [flapping, steady] = [index.addTarget(), index.addTarget()]
    index.retain(steady, device, chainOf(0, 50))
    for (let round = 0; round < 5000; round++) {
      index.retain(flapping, device, list(spread(round % 60)))
      index.clear(flapping)
    }
    expect([index.stats().pairs, overlapsOf(index, chainOf(0, 3))[0]?.[steady]]).toEqual([50, 3])
    expect(index.stats().sizeBytes).toBeLessThan(1_000_000)
  })

  test('memory returns whether blocks are released one by one, cleared, or leave with their target', () => {
    const index = new TwinPrefixIndex()
    const targets = Array.from({ length: 9 }, () => index.addTarget())
    const startBytes = index.stats().ledgerBytes
    for (const [place, target] of targets.entries()) {
      for (const tier of [device, host] as const) index.retain(target, tier, chainOf(place * 3000, 6000))
      index.retain(target, device, chainOf(place * 3000, 100))
      index.addOptimistic(target, chainOf(place * 3000, 100), 0)
    }
    expect(index.stats().ledgerBytes).toBeGreaterThan(1_000_000)
    for (const [place, target] of targets.entries()) {
      if (place % 3 === 0) index.clear(target)
      else if (place % 3 === 1) index.removeTarget(target)
      else {
        index.release(target, device, chainOf(place * 3000, 100))
        for (const tier of [device, host] as const) index.release(target, tier, chainOf(place * 3000, 6000))
      }
    }
    index.match(list(), new Uint32Array(9), { nowMs: 1_000_000 })
    expect(swept(index).stats()).toMatchObject({ pairs: 0, deadPairs: 0, blocks: 0, optimisticBlocks: 0 })
    expect(index.stats().ledgerBytes).toBe(startBytes)
  })

  test('at its bound it refuses and counts this block and those behind it, and still takes what it has already', () => {
    const index = new TwinPrefixIndex({ pairsMax: 2 })
    const target = index.addTarget()
    expect(index.retain(target, device, list(1n, 2n, 3n, 1n))).toBe(2)
    expect(index.stats()).toMatchObject({ pairs: 2, refusedPairs: 2 })
    expect(index.retain(target, device, list(1n, 2n))).toBe(2)
    expect(index.release(target, device, list(1n, 1n))).toBe(1)
    expect(index.retain(target, host, list(3n))).toBe(1)
  })

  test('what a cleared target held makes room at once', () => {
    const index = new TwinPrefixIndex({ pairsMax: 1000 })
    const [one, other] = [index.addTarget(), index.addTarget()]
    index.retain(one, device, chainOf(0, 1000))
    index.clear(one)
    expect([index.stats().pairs, index.retain(other, device, chainOf(5000, 1000))]).toEqual([0, 1000])
  })

  test('at the bound of its memory it refuses, keeps what it has, and takes again what fits', () => {
    const index = new TwinPrefixIndex({ bytesMax: 200_000 })
    const [target, other] = [index.addTarget(), index.addTarget()]
    const taken = index.retain(target, device, chainOf(0, 100_000))
    expect(taken).toBeGreaterThan(1000)
    expect(index.stats().refusedPairs).toBe(100_000 - taken)
    expect(index.stats().ledgerBytes).toBeLessThanOrEqual(200_000)
    expect(overlapsOf(index, chainOf(0, 100_000))).toEqual([[taken, 0]])
    index.clear(target)
    // Each refusal sweeps on.
    for (let round = 0; round < 3; round++) index.retain(other, device, chainOf(500_000, 1))
    expect(index.retain(other, device, chainOf(200_000, 1000))).toBe(1000)
  })

  test.each(['pairsMax', 'bytesMax', 'targetsMax', 'optimisticBlocksMax'])('%s of 0 is refused', (name) => {
    expect(codeOf(() => new TwinPrefixIndex({ [name]: 0 }))).toBe('INFERA_NATIVE_OPTIONS')
  })
})

describe('a snapshot of the twin', () => {
  function filled(): TwinPrefixIndex {
    const index = new TwinPrefixIndex()
    for (let target = 0; target < 70; target++) index.addTarget({ isPrefixMonotone: target % 2 === 0 })
    for (let target = 0; target < 70; target += 3) index.retain(target, device, chainOf(0, target))
    index.retain(5, disk, chainOf(100, 30))
    index.retain(5, disk, chainOf(110, 5))
    index.addOptimistic(5, chainOf(0, 9), 0)
    index.removeTarget(7)
    return index
  }

  test('restores targets, numbers, blocks and references, without optimistic blocks', () => {
    const restored = new TwinPrefixIndex()
    restored.restore(filled().snapshot())
    const expected = Array.from({ length: 70 }, (_, target) => (target % 3 === 0 ? target : 0))
    expect(overlapsOf(restored, chainOf(0, 80))).toEqual([expected])
    expect([112, 120, 130].map((block) => restored.refCount(5, disk, spread(block)))).toEqual([2, 1, 0])
    expect(restored.addTarget()).toBe(7)
    expect(restored.stats()).toMatchObject({ targets: 70, optimisticBlocks: 0 })
  })

  test('is refused by an index that had a target, even when that is gone', () => {
    const index = new TwinPrefixIndex()
    index.removeTarget(index.addTarget())
    expect(codeOf(() => index.restore(filled().snapshot()))).toBe('INFERA_NATIVE_NOT_EMPTY')
  })

  test.each([{ targetsMax: 68 }, { pairsMax: 100 }, { bytesMax: 65_536 }])(
    'beyond %j is refused and leaves the index as it was',
    (options) => {
      const index = new TwinPrefixIndex(options)
      const before = index.stats()
      const large = filled()
      large.retain(5, remote, chainOf(1000, 5000))
      expect(codeOf(() => index.restore(large.snapshot()))).toBe('INFERA_NATIVE_BOUND')
      expect([index.targetCount, index.stats()]).toEqual([0, before])
      const small = new TwinPrefixIndex()
      small.retain(small.addTarget(), device, chainOf(0, 3))
      index.restore(small.snapshot())
      expect(index.stats().pairs).toBe(3)
    },
  )

  test('cut off anywhere, or with any byte changed, is refused', () => {
    const snapshot = filled().snapshot()
    for (let length = 0; length < snapshot.length; length += 7)
      expect(codeOf(() => new TwinPrefixIndex().restore(snapshot.subarray(0, length)))).toBe(
        'INFERA_NATIVE_BAD_SNAPSHOT',
      )
    for (let at = 0; at < snapshot.length; at += 3) {
      const changed = snapshot.slice()
      changed[at]! ^= 0x10
      expect(codeOf(() => new TwinPrefixIndex().restore(changed))).toBe('INFERA_NATIVE_BAD_SNAPSHOT')
    }
  })

  test('with changed content under a right checksum restores something sound or nothing', () => {
    const snapshot = filled().snapshot()
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(snapshot.length - 1), fc.nat(255)), { maxLength: 3 }),
        (changes) => {
          const bytes = snapshot.slice()
          for (const [at, value] of changes) bytes[at] = value
          seal(bytes)
          const index = new TwinPrefixIndex()
          const code = codeOf(() => index.restore(bytes))
          expect(['none', 'INFERA_NATIVE_BAD_SNAPSHOT', 'INFERA_NATIVE_BOUND']).toContain(code)
          if (code === 'none') expect(index.snapshot().length).toBeLessThanOrEqual(bytes.length)
          else expect([index.targetCount, index.stats().pairs]).toEqual([0, 0])
        },
      ),
      { numRuns: 500 },
    )
  })
})
