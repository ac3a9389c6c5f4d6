import { beforeEach, describe, expect, test } from 'vitest'
import type { Addon } from '../src/addon.js'
import { chainBlockHashes, createPrefixIndex, newKvEventCounts, type Tier } from '../src/index.js'
import { skipWithoutAddon, theAddon } from './support/addon.js'
import { storedBatch } from './support/payloads.js'

beforeEach(skipWithoutAddon)

const hashes = BigUint64Array.of(1n, 2n)
const codeOf = (call: () => unknown): unknown => {
  try {
    call()
  } catch (error) {
    return (error as { code?: unknown }).code
  }
  return 'no error'
}

function detached<T extends Uint8Array | Uint32Array | BigUint64Array>(array: T): T {
  structuredClone(array.buffer, { transfer: [array.buffer as ArrayBuffer] })
  return array
}

function filled() {
  const index = createPrefixIndex()
  const target = index.addTarget({ isPrefixMonotone: true })
  index.retain(target, 0, hashes)
  return { index, target, view: index.createView({ blockSizeTokens: 4 }) }
}

describe('arrays that cannot be used are INFERA_NATIVE_BUFFER, and nothing changes', () => {
  const wrong: readonly [string, unknown][] = [
    ['nothing', undefined],
    ['null', null],
    ['a list', [1n, 2n]],
    ['a number', 5],
    ['an ArrayBuffer', new ArrayBuffer(16)],
    ['a DataView', new DataView(new ArrayBuffer(16))],
    ['a typed array of another kind', new Float32Array(4)],
    ['a typed array of the same width', new BigInt64Array(2)],
    ['an object that says it is one', { length: 2, buffer: new ArrayBuffer(16), byteOffset: 0 }],
    ['a proxy of one', new Proxy(new BigUint64Array(2), {})],
  ]
  test.each(wrong)('%s', (_, value) => {
    const { index, target, view } = filled()
    const before = index.stats()
    const array = value as never
    const overlaps = new Uint32Array(4)
    const calls = [
      () => index.retain(target, 0, array),
      () => index.release(target, 0, array),
      () => index.addOptimistic(target, array, 0),
      () => index.match(array, overlaps, { nowMs: 0 }),
      () => index.match(hashes, array, { nowMs: 0 }),
      () => index.matchLinear(array, overlaps, { nowMs: 0 }),
      () => index.matchTokens(new Uint32Array(8), 4, array, { nowMs: 0 }),
      () => index.restore(array),
      () => view.apply(array, newKvEventCounts()),
    ]
    expect(calls.map(codeOf)).toEqual(calls.map(() => 'INFERA_NATIVE_BUFFER'))
    expect(index.stats()).toEqual(before)
  })

  test('detached arrays', () => {
    const { index, target, view } = filled()
    const overlaps = new Uint32Array(4)
    const calls = [
      () => index.retain(target, 0, detached(new BigUint64Array(2))),
      () => index.match(detached(new BigUint64Array(2)), overlaps, { nowMs: 0 }),
      () => index.match(hashes, detached(new Uint32Array(4)), { nowMs: 0 }),
      () => index.restore(detached(new Uint8Array(100))),
      () => view.apply(detached(new Uint8Array(storedBatch(1, 2, 4))), newKvEventCounts()),
    ]
    expect(calls.map(codeOf)).toEqual(calls.map(() => 'INFERA_NATIVE_BUFFER'))
  })

  test('arrays over a resizable buffer that shrank under them', () => {
    // As the language has them since ES2024; the types of this repository's target do not know the option.
    const buffer = new (
      ArrayBuffer as unknown as new (
        length: number,
        options: object,
      ) => ArrayBuffer & { resize(length: number): void }
    )(64, {
      maxByteLength: 64,
    })
    const array = new BigUint64Array(buffer, 8, 7)
    buffer.resize(16)
    const { index, target } = filled()
    // Out of bounds it has no elements; nothing is read past its end.
    expect(index.retain(target, 1, array)).toBe(0)
  })

  test('bytes in shared memory, which could change while they are read', () => {
    const { index, view } = filled()
    const shared = new Uint8Array(new SharedArrayBuffer(64))
    expect(codeOf(() => view.apply(shared, newKvEventCounts()))).toBe('INFERA_NATIVE_BUFFER')
    expect(codeOf(() => index.restore(shared))).toBe('INFERA_NATIVE_BUFFER')
  })

  test('overlaps that do not reach the last target', () => {
    const { index } = filled()
    expect(index.targetCount).toBe(2)
    for (const [length, levels] of [
      [0, 1],
      [1, 1],
      [7, 4],
    ] as const) {
      const overlaps = new Uint32Array(length).fill(9)
      expect(codeOf(() => index.match(hashes, overlaps, { nowMs: 0, levels }))).toBe('INFERA_NATIVE_BUFFER')
      expect(codeOf(() => index.matchLinear(hashes, overlaps, { nowMs: 0, levels }))).toBe(
        'INFERA_NATIVE_BUFFER',
      )
      expect([...overlaps]).toEqual(new Array(length).fill(9))
    }
  })

  test('an array in the middle of its buffer is read and written where it is', () => {
    const { index } = filled()
    const buffer = new ArrayBuffer(64)
    const middle = new BigUint64Array(buffer, 24, 2)
    middle.set(hashes)
    const overlaps = new Uint32Array(new ArrayBuffer(64), 12, 2)
    index.match(middle, overlaps, { nowMs: 0 })
    expect([...new Uint32Array(overlaps.buffer)].slice(0, 6)).toEqual([0, 0, 0, 2, 0, 0])
  })
})

describe('arguments out of range are INFERA_NATIVE_OPTIONS', () => {
  test.each([[4], [-1], [0.5], [Number.NaN], ['0'], [undefined], [null]])('a tier of %s', (tier) => {
    const { index, target } = filled()
    const bad = tier as Tier
    const calls = [
      () => index.retain(target, bad, hashes),
      () => index.release(target, bad, hashes),
      () => index.has(target, bad, 1n),
      () => index.refCount(target, bad, 1n),
      () => index.blocksOf(target, bad),
    ]
    expect(calls.map(codeOf)).toEqual(calls.map(() => 'INFERA_NATIVE_OPTIONS'))
  })

  test.each([[0], [5], [1.5], [Number.NaN], ['1']])('%s levels', (levels) => {
    const { index } = filled()
    const options = { nowMs: 0, levels: levels as number }
    expect(codeOf(() => index.match(hashes, new Uint32Array(64), options))).toBe('INFERA_NATIVE_OPTIONS')
  })

  test.each([[-1], [Number.NaN], [Number.POSITIVE_INFINITY], [2 ** 60], [undefined], ['0']])(
    'a time of %s',
    (nowMs) => {
      const { index, target } = filled()
      const bad = nowMs as number
      expect(codeOf(() => index.match(hashes, new Uint32Array(4), { nowMs: bad }))).toBe(
        'INFERA_NATIVE_OPTIONS',
      )
      expect(codeOf(() => index.addOptimistic(target, hashes, bad))).toBe('INFERA_NATIVE_OPTIONS')
    },
  )

  test('a hash that is no bigint, and a block size beyond 2^32', () => {
    const { index, target } = filled()
    expect(codeOf(() => index.has(target, 0, 1 as never))).toBe('INFERA_NATIVE_OPTIONS')
    expect(codeOf(() => chainBlockHashes(new Uint32Array(8), 4, 1 as never))).toBe('INFERA_NATIVE_OPTIONS')
    expect(codeOf(() => index.addTarget({ isPrefixMonotone: 1 as never }))).toBe('INFERA_NATIVE_OPTIONS')
    expect(chainBlockHashes(new Uint32Array(8), 2 ** 40)).toEqual(new BigUint64Array(0))
  })

  test.each([[99], [-1], [0.5], [2 ** 32], [2 ** 32 + 0.5], [Number.NaN], ['0'], [undefined]])(
    'target %s is nobody, and reads as empty',
    (target) => {
      const { index } = filled()
      const nobody = target as number
      expect(index.retain(nobody, 0, hashes)).toBe(0)
      expect(index.release(nobody, 0, hashes)).toBe(0)
      expect(index.has(nobody, 0, 1n)).toBe(false)
      index.clear(nobody)
      index.removeTarget(nobody)
      expect(index.stats()).toMatchObject({ targets: 2, pairs: 2 })
    },
  )
})

describe('objects of the addon', () => {
  const functionsOf = (addon: Addon, prefix: string) =>
    Object.entries(addon).filter(([name, value]) => name.startsWith(prefix) && typeof value === 'function')
  const notIndexes = [
    undefined,
    null,
    1,
    'index',
    {},
    [],
    Object.create(null),
    () => undefined,
    new Proxy({}, {}),
  ]

  test('nothing else passes for an index or a view, whatever function it is given to', () => {
    const { addon } = theAddon()
    const index = addon.indexCreate(100, 2 ** 20, 10, 1000, 10, 0, 1)
    const view = addon.viewCreate(index, 4, 100, 15, true, true)
    const indexFunctions = functionsOf(addon, 'index').filter(([name]) => !/Create|Open/.test(name))
    expect(indexFunctions.length).toBeGreaterThan(15)
    for (const [name, call] of indexFunctions)
      for (const value of [...notIndexes, view, Object.create(index)])
        expect([name, codeOf(() => call(value))]).toEqual([name, 'INFERA_NATIVE_OPTIONS'])
    for (const [name, call] of functionsOf(addon, 'view'))
      for (const value of [...notIndexes, name === 'viewCreate' ? view : index])
        expect([name, codeOf(() => call(value))]).toEqual([name, 'INFERA_NATIVE_OPTIONS'])
  })

  test('a call without arguments is an error, not a crash', () => {
    const { addon } = theAddon()
    for (const [name, value] of Object.entries(addon)) {
      if (typeof value !== 'function' || name === 'indexOpen') continue
      expect([name, codeOf(() => value())]).toEqual([name, expect.stringMatching(/^INFERA_NATIVE_/)])
    }
  })
})

describe('a closed view', () => {
  test('takes everything, changes nothing, and its number goes to the next target', () => {
    const { index, view } = filled()
    view.apply(storedBatch(1, 8, 4), newKvEventCounts())
    view.close()
    view.close()
    const before = index.stats()
    const counts = newKvEventCounts()
    view.apply(storedBatch(1, 8, 4), counts)
    view.clear()
    expect(view.freeStep()).toBe(false)
    expect(view.stats()).toMatchObject({ names: 0, sizeBytes: 0 })
    expect(counts).toEqual(newKvEventCounts())
    expect(index.stats()).toEqual(before)
    expect(index.addTarget()).toBe(view.target)
  })
})
