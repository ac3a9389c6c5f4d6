import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { chainParent } from '../chain-parent.js'
import { chainBlockHashes } from './block-hash.js'
import { chainParentOf, markedParent, markOf } from './chain-identity.js'

type Text = string | { readonly text: string; readonly times: number }
interface Vectors {
  readonly chains: readonly { lora: Text; salt: Text; parent: string; first: string }[]
  readonly marked: readonly { parent: string; mark: string; marked: string }[]
  readonly marks: readonly { bytes: string; mark: string }[]
}

const vectors: Vectors = JSON.parse(
  readFileSync(new URL('../../test/vectors/chain-identity.json', import.meta.url), 'utf8'),
)
const textOf = (value: Text) => (typeof value === 'string' ? value : value.text.repeat(value.times))
const bytesOf = (value: string) => new TextEncoder().encode(value)
const twin = (lora: string, salt: string) => chainParentOf(bytesOf(lora), bytesOf(salt))

describe('vectors', () => {
  test('parents of adapters and salts', () => {
    expect(vectors.chains.length).toBeGreaterThan(10)
    for (const { lora, salt, parent, first } of vectors.chains) {
      expect(chainParent({ lora: textOf(lora), salt: textOf(salt) })).toBe(BigInt(parent))
      expect(twin(textOf(lora), textOf(salt))).toBe(BigInt(parent))
      expect(chainBlockHashes(Uint32Array.of(1, 2, 3, 4), 4, BigInt(parent))).toEqual(
        BigUint64Array.of(BigInt(first)),
      )
    }
  })

  test('marks', () => {
    for (const { parent, mark, marked } of vectors.marked)
      expect(markedParent(BigInt(parent), BigInt(mark))).toBe(BigInt(marked))
    for (const { bytes, mark } of vectors.marks)
      expect(markOf(Uint8Array.from(Buffer.from(bytes, 'hex')))).toBe(BigInt(mark))
  })
})

test('different adapters and salts have different parents, and only nobody has 0', () => {
  const identityArb = fc.record({ lora: fc.string({ maxLength: 4 }), salt: fc.string({ maxLength: 4 }) })
  fc.assert(
    fc.property(identityArb, identityArb, (one, other) => {
      const isSame = one.lora === other.lora && one.salt === other.salt
      expect(chainParent(one) === chainParent(other)).toBe(isSame)
      expect(chainParent(one) === 0n).toBe(one.lora === '' && one.salt === '')
      expect(chainParent(one)).toBe(twin(one.lora, one.salt))
    }),
    { numRuns: 500 },
  )
})

test('what is absent is as what is empty', () => {
  expect(chainParent({})).toBe(0n)
  expect(chainParent({ lora: undefined, salt: '' })).toBe(0n)
  expect(chainParent({ lora: 'a' })).toBe(chainParent({ lora: 'a', salt: '' }))
})

test('half a surrogate pair is read as the replacement character, as encoders do', () => {
  expect(chainParent({ salt: '\ud800' })).toBe(chainParent({ salt: '\ufffd' }))
})
