import { readFileSync } from 'node:fs'
import { xxh3 } from '@node-rs/xxhash'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { chainBlockHashes } from './block-hash.js'

interface Vectors {
  readonly chains: readonly {
    readonly name: string
    readonly tokens: readonly number[] | { readonly from: number; readonly to: number }
    readonly blockSizeTokens: number
    readonly parent: string
    readonly blockCount: number
    readonly hashes: Readonly<Record<string, string>>
  }[]
  readonly digests: readonly { readonly name: string; readonly bytes: string; readonly digest: string }[]
}

const vectors: Vectors = JSON.parse(
  readFileSync(new URL('../../../router/test/vectors/block-hash.json', import.meta.url), 'utf8'),
)

/** The chain as its definition reads, with a buffer for each block. */
function slowChain(tokens: readonly number[], blockSizeTokens: number, parent: bigint): bigint[] {
  const hashes: bigint[] = []
  for (let end = blockSizeTokens; end <= tokens.length; end += blockSizeTokens) {
    const buffer = Buffer.alloc(8 + 4 * blockSizeTokens)
    buffer.writeBigUInt64LE(hashes.at(-1) ?? parent, 0)
    for (const [index, token] of tokens.slice(end - blockSizeTokens, end).entries())
      buffer.writeUInt32LE(token, 8 + 4 * index)
    hashes.push(xxh3.xxh64(buffer, 0n))
  }
  return hashes
}

const tokensArb = fc.uint32Array({ maxLength: 200 })
const blockSizeArb = fc.integer({ min: 1, max: 40 })
const hashArb = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n })

describe('vectors of the routing specification', () => {
  test.each(vectors.chains)('the chain $name has the hashes of the vector', (vector) => {
    const { tokens: given, blockSizeTokens, parent, blockCount, hashes } = vector
    const tokens =
      'from' in given
        ? Uint32Array.from({ length: given.to - given.from + 1 }, (_, index) => given.from + index)
        : Uint32Array.from(given)

    const chain = chainBlockHashes(tokens, blockSizeTokens, BigInt(parent))

    expect(chain.length).toBe(blockCount)
    for (const [index, hash] of Object.entries(hashes)) expect(chain[Number(index)]).toBe(BigInt(hash))
  })

  test.each(vectors.digests)('XXH3 of $name is the digest of the vector', ({ bytes, digest }) => {
    expect(xxh3.xxh64(Buffer.from(bytes, 'hex'), 0n)).toBe(BigInt(digest))
  })
})

test('the hashes equal those of the slow chain', () => {
  fc.assert(
    fc.property(tokensArb, blockSizeArb, hashArb, (tokens, blockSizeTokens, parent) => {
      expect([...chainBlockHashes(tokens, blockSizeTokens, parent)]).toEqual(
        slowChain([...tokens], blockSizeTokens, parent),
      )
    }),
  )
})

test('the hashes of a prefix are a prefix of the hashes', () => {
  fc.assert(
    fc.property(tokensArb, blockSizeArb, fc.nat(200), (tokens, blockSizeTokens, cut) => {
      const whole = chainBlockHashes(tokens, blockSizeTokens)
      const part = chainBlockHashes(tokens.subarray(0, cut), blockSizeTokens)
      expect(whole.subarray(0, part.length)).toEqual(part)
    }),
  )
})

test('a chain can be continued from the hash of any of its blocks', () => {
  fc.assert(
    fc.property(tokensArb, blockSizeArb, fc.nat(200), (tokens, blockSizeTokens, cut) => {
      const whole = chainBlockHashes(tokens, blockSizeTokens)
      const done = whole.length === 0 ? 0 : cut % whole.length
      const rest = tokens.subarray(done * blockSizeTokens)
      const parent = done === 0 ? 0n : whole[done - 1]
      expect(chainBlockHashes(rest, blockSizeTokens, parent)).toEqual(whole.subarray(done))
    }),
  )
})

test('a change in one token changes the hashes of its block and of every later one', () => {
  fc.assert(
    fc.property(fc.uint32Array({ minLength: 1, maxLength: 100 }), fc.nat(), (tokens, place) => {
      const at = place % tokens.length
      const changed = Uint32Array.from(tokens)
      changed[at] = ((tokens[at] ?? 0) ^ 1) >>> 0
      const [before, after] = [chainBlockHashes(tokens, 4), chainBlockHashes(changed, 4)]
      const first = Math.floor(at / 4)
      expect(after.subarray(0, first)).toEqual(before.subarray(0, first))
      for (let block = first; block < before.length; block++) expect(after[block]).not.toBe(before[block])
    }),
  )
})

test('a view into a larger buffer hashes like a copy of it', () => {
  const all = Uint32Array.from({ length: 64 }, (_, index) => index)
  expect(chainBlockHashes(all.subarray(5, 37), 16)).toEqual(chainBlockHashes(all.slice(5, 37), 16))
})

test.each([0, -1, -16])('a block size of %i gives no hashes', (blockSizeTokens) => {
  expect(chainBlockHashes(Uint32Array.of(1, 2, 3), blockSizeTokens)).toEqual(new BigUint64Array(0))
})

test('tokens that fill no block give no hashes', () => {
  expect(chainBlockHashes(Uint32Array.of(1, 2, 3), 4).length).toBe(0)
  expect(chainBlockHashes(new Uint32Array(0), 4).length).toBe(0)
})
