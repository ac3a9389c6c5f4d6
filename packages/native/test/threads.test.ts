import { copyFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import type { Addon } from '../src/addon.js'
import { createPrefixIndex, openPrefixIndex, UnknownHandleError } from '../src/index.js'
import { emptyFolder, runChild, skipWithoutAddon, theAddon } from './support/addon.js'

beforeEach(skipWithoutAddon)

describe('one index in many threads', () => {
  test('threads that store, remove and match at once see their own blocks at once and all blocks in the end', async () => {
    const ended = await runChild('threads.ts')
    expect(ended).toMatchObject({ code: 0, signal: null, stderr: '' })
    expect(JSON.parse(ended.stdout)).toEqual({
      distinctTargets: 4,
      overlaps: [64, 64, 64, 64],
      pairs: 4 * 64,
      mismatches: 0,
      areMatchesVerified: true,
    })
  })

  test('a handle opens the same index, and has nothing that could be guessed', () => {
    const index = createPrefixIndex()
    const again = openPrefixIndex(index.handle)
    const target = again.addTarget()
    again.retain(target, 0, BigUint64Array.of(1n, 2n))
    expect(index.blocksOf(target, 0)).toBe(2)
    expect(again.handle).toBe(index.handle)
    expect(index.handle).toMatch(/^infera-index-[0-9a-f]{32}$/)
    expect(createPrefixIndex().handle).not.toBe(index.handle)
  })

  test.each(['', 'infera-index-00000000000000000000000000000000', 'x'.repeat(100_000), 7 as never])(
    'a handle of nothing is an error (case %#)',
    (handle) => {
      expect(() => openPrefixIndex(handle)).toThrow(UnknownHandleError)
    },
  )
})

describe('two loaded copies of the addon in one process', () => {
  function secondCopy(): Addon {
    const copy = join(emptyFolder(), 'copy.node')
    copyFileSync(theAddon().file, copy)
    return createRequire(import.meta.url)(copy) as Addon
  }
  const makeIndex = (addon: Addon) => addon.indexCreate(100, 2 ** 20, 10, 1000, 10, 0, 1)

  test('each has indexes and handles of its own', () => {
    const [one, other] = [theAddon().addon, secondCopy()]
    const [first, second] = [makeIndex(one), makeIndex(other)]
    expect(one.indexAddTarget(first, true)).toBe(0)
    expect(one.indexRetain(first, 0, 0, BigUint64Array.of(5n))).toBe(1)
    expect(other.indexAddTarget(second, true)).toBe(0)
    expect(other.indexHas(second, 0, 0, 5n)).toBe(false)
    expect(other.indexOpen(one.indexToken(first))).toBeUndefined()
    expect(one.indexOpen(one.indexToken(first))).toBeDefined()
  })

  test('an object of one is refused by the other', () => {
    const [one, other] = [theAddon().addon, secondCopy()]
    const index = makeIndex(one)
    const view = one.viewCreate(index, 4, 100, 15, true, true)
    expect(() => other.indexStats(index)).toThrow(/index of this copy/)
    expect(() => other.viewStats(view)).toThrow(/view of this copy/)
  })
})
