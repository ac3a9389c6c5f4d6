import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BrokenSimError } from '../errors.js'
import { BlockPool, type PoolListener } from './block-pool.js'

const silent: PoolListener = { blockStored() {}, blockRemoved() {} }
const tokens = Uint32Array.of(1, 2)
const poolOf = (blocks: number, listener = silent) => new BlockPool({ blocks, blockSizeTokens: 2 }, listener)

/** Takes and caches a chain with these hashes; the caller holds it. */
function cacheChain(pool: BlockPool, hashes: readonly bigint[]): number[] {
  return hashes.map((hash, index) => pool.cache(pool.take(), hash, hashes[index - 1], tokens))
}

describe('a pool of blocks', () => {
  test('evicts the tail of the longest released chain first, and only when no blank block is left', () => {
    const removed: bigint[] = []
    const pool = poolOf(5, { blockStored() {}, blockRemoved: (hash) => removed.push(hash) })
    pool.release(cacheChain(pool, [1n, 2n]))
    pool.release(cacheChain(pool, [11n, 12n]))
    for (let count = 0; count < 5; count++) pool.take()
    expect(removed).toEqual([2n, 1n, 12n, 11n])
  })

  test('never evicts a held block, and has none to give when all are held', () => {
    const pool = poolOf(2)
    const chain = cacheChain(pool, [1n])
    pool.take()
    expect(pool.availableBlocks).toBe(0)
    expect(() => pool.take()).toThrow(BrokenSimError)
    expect(pool.find(1n)).toBe(chain[0])
  })

  test('a hit moves a chain to the young end of the order', () => {
    const pool = poolOf(2)
    pool.release(cacheChain(pool, [1n]))
    pool.release(cacheChain(pool, [2n]))
    const hit = pool.findChain([1n], 1)
    for (const block of hit) pool.hold(block)
    pool.release(hit)
    pool.take()
    expect([pool.find(1n), pool.find(2n)]).toEqual([hit[0], undefined])
  })

  test('a private copy of a cached block is freed for the cached one', () => {
    const pool = poolOf(3)
    const [first] = cacheChain(pool, [1n])
    const [second] = cacheChain(pool, [1n])
    expect(second).toBe(first)
    expect(pool.usedBlocks).toBe(1)
    pool.release([first!])
    expect(pool.usedBlocks).toBe(1)
    pool.release([second!])
    expect(pool.usedBlocks).toBe(0)
  })

  test('finds no more than the leading part of a chain, up to the limit', () => {
    const pool = poolOf(4)
    const chain = cacheChain(pool, [1n, 2n, 3n])
    expect(pool.findChain([1n, 2n, 9n, 3n], 4)).toEqual(chain.slice(0, 2))
    expect(pool.findChain([1n, 2n, 3n], 1)).toEqual(chain.slice(0, 1))
  })

  test('accounts for every block, and keeps the parent of each cached block cached, whatever chains come and go', () => {
    // A chain is a path in a binary tree of hashes: 1 -> 2 | 3, 2 -> 4 | 5, ...
    const path = fc.array(fc.boolean(), { minLength: 1, maxLength: 5 })
    const step = fc.record({ path, releases: fc.nat(3) })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const pool = poolOf(9)
        const held: number[][] = []
        for (const { path, releases } of steps) {
          for (let count = 0; count < releases; count++) pool.release(held.shift() ?? [])
          const hashes = [1n]
          for (const isRight of path) hashes.push(hashes.at(-1)! * 2n + (isRight ? 1n : 0n))
          const chain = pool.findChain(hashes, hashes.length)
          const idle = chain.filter((block) => pool.isIdle(block)).length
          if (pool.availableBlocks - idle < hashes.length - chain.length) continue
          for (const block of chain) pool.hold(block)
          while (chain.length < hashes.length) {
            const index = chain.length
            chain.push(pool.cache(pool.take(), hashes[index]!, hashes[index - 1], tokens))
          }
          held.push(chain)
          expect(pool.usedBlocks).toBe(new Set(held.flat()).size)
          pool.forEachCached((block, hash, parent) => {
            expect(pool.find(hash)).toBe(block)
            if (parent !== undefined) expect(pool.find(parent)).toBeDefined()
          })
        }
        for (const chain of held) pool.release(chain)
        expect(pool.availableBlocks).toBe(9)
      }),
    )
  })
})
