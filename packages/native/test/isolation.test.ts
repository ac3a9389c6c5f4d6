// Prompts of different adapters and cache salts share nothing (B28 of the field reports), in both implementations.
import { encode } from '@msgpack/msgpack'
import { describe, expect, test } from 'vitest'
import { chainParent, createPrefixIndex, newKvEventCounts, type PrefixIndex } from '../src/index.js'
import { TwinPrefixIndex } from '../src/twin/prefix-index.js'

const tokens = Uint32Array.from({ length: 12 }, (_, at) => at + 1)
const image = ['digest-of-an-image', 3]

function rig(index: PrefixIndex) {
  const view = index.createView({ blockSizeTokens: 4 })
  const counts = newKvEventCounts()
  let name = 1
  return {
    counts,
    store: (fields: object) => {
      const event = {
        type: 'BlockStored',
        block_hashes: [name++, name++, name++],
        parent_block_hash: null,
        token_ids: [...tokens],
        block_size: 4,
        ...fields,
      }
      view.apply(encode([1.5, [event], 0]), counts)
    },
    overlap: (identity: { lora?: string; salt?: string }) => {
      const overlaps = new Uint32Array(index.targetCount)
      index.matchTokens(tokens, 4, overlaps, { nowMs: 0, parent: chainParent(identity) })
      return overlaps[view.target]
    },
  }
}

describe.each([
  ['the index of this machine', () => createPrefixIndex()],
  ['the twin', () => new TwinPrefixIndex()],
])('in %s', (_, create) => {
  test('the same prompt with another salt overlaps by nothing, and an empty salt is none', () => {
    const { store, overlap, counts } = rig(create())
    store({ cache_salt: 'x' })
    expect([{ salt: 'x' }, { salt: 'y' }, { salt: '' }, {}, { lora: 'x' }].map(overlap)).toEqual([
      3, 0, 0, 0, 0,
    ])
    store({ cache_salt: '' })
    expect([{ salt: '' }, {}, { salt: 'y' }].map(overlap)).toEqual([3, 3, 0])
    store({ extra_keys: [['y'], null, null] })
    expect(overlap({ salt: 'y' })).toBe(3)
    expect(counts).toMatchObject({ badEvents: 0, storedEvents: 3 })
  })

  test('the same prompt of another adapter overlaps by nothing', () => {
    const { store, overlap } = rig(create())
    store({ lora_name: 'sql', extra_keys: [['sql', 'x'], ['sql'], ['sql']] })
    store({ lora_id: 5 })
    const asked = [{ lora: 'sql', salt: 'x' }, { lora: 'sql' }, { salt: 'x' }, {}, { lora: 'sql', salt: 'y' }]
    expect(asked.map(overlap)).toEqual([3, 0, 0, 0, 0])
  })

  test('text alone overlaps up to the first block that holds more than text', () => {
    const { store, overlap } = rig(create())
    store({ extra_keys: [null, [image], null] })
    expect(overlap({})).toBe(1)
    store({ cache_salt: 'x', extra_keys: [[image], null, null] })
    expect(overlap({ salt: 'x' })).toBe(0)
  })
})
