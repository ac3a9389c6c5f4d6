import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { chainBlockHashes } from '../prompt/block-hash.js'
import { CacheView } from './cache-view.js'
import { zeroEventCounts } from './event-counters.js'
import { type BlockRemoved, type BlockStored, decodeKvBatch, type KvEvent } from './kv-event-decoder.js'
import { PrefixIndex } from './prefix-index.js'

function rig({ blockSizeTokens = 4, blocksMax = 10_000, engineHashesMax = 10_000 } = {}) {
  const index = new PrefixIndex({ blocksMax })
  const counts = zeroEventCounts()
  const warnings: string[] = []
  const ignore = () => {}
  const logger = {
    debug: ignore,
    info: ignore,
    error: ignore,
    warn: (_: unknown, message: string) => warnings.push(message),
  }
  const view = new CacheView({
    index,
    blockSizeTokens,
    engineHashesMax,
    counts,
    logger,
    workerId: 'w',
    rank: 0,
  })
  return { index, counts, warnings, view }
}

const range = (from: number, to: number) =>
  Uint32Array.from({ length: to - from + 1 }, (_, index) => from + index)
const placed = { medium: null, groupIndex: null, isRemote: false }

function stored(
  engineHashes: readonly bigint[],
  tokens: Uint32Array,
  more: Partial<BlockStored> = {},
): BlockStored {
  const blockHashes = BigUint64Array.from(engineHashes)
  const rest = { parentHash: null, blockSizeTokens: null, groupKind: null }
  return { type: 'blockStored', ...placed, ...rest, blockHashes, tokens, ...more }
}

function removed(engineHashes: readonly bigint[], more: Partial<BlockRemoved> = {}): BlockRemoved {
  return { type: 'blockRemoved', ...placed, blockHashes: BigUint64Array.from(engineHashes), ...more }
}

const cleared: KvEvent = { type: 'allBlocksCleared' }
/** Router hashes of the tokens 1, 2, 3, ... in blocks of 4. */
const chain = chainBlockHashes(range(1, 40), 4)
const held = (view: CacheView) => [...chain].map((hash) => view.has(hash))

describe('stored blocks', () => {
  test('both wire vectors leave the two hashes of the specification in view', () => {
    for (const vector of [
      '93cb3ff80000000000009197ab426c6f636b53746f726564926fccdec098010203040506070804c0c0c0',
      '93cb3ff80000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573926fccdeb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0c0',
    ]) {
      const { view } = rig()
      view.apply(decodeKvBatch(Buffer.from(vector, 'hex')).events)
      expect(view.blockCount).toBe(2)
      expect([0x341839abbe30be0bn, 0x37b6de0623bdb5can].every((hash) => view.has(hash))).toBe(true)
    }
  })

  test('chain on from a parent that is known by its engine hash', () => {
    const { view } = rig()
    view.apply([stored([1n, 2n], range(1, 8)), stored([3n], range(9, 12), { parentHash: 2n })])
    expect(held(view).slice(0, 4)).toEqual([true, true, true, false])
  })

  test('chain on whatever form their parent has: a digest named by a negative integer, too', () => {
    const { view } = rig()
    const digest = Uint8Array.of(...new Array<number>(24).fill(9), 0x80, 0, 0, 0, 0, 0, 0, 1)
    const events = [
      ['BlockStored', [digest], null, [1, 2, 3, 4], 4],
      {
        type: 'BlockStored',
        block_hashes: [2],
        parent_block_hash: -(2n ** 63n) + 1n,
        token_ids: [5, 6, 7, 8],
      },
    ]
    view.apply(decodeKvBatch(encode([1, events], { useBigInt64: true })).events)
    expect(held(view).slice(0, 2)).toEqual([true, true])
  })

  test('of an unknown parent are dropped and counted', () => {
    const { view, counts } = rig()
    view.apply([stored([3n], range(9, 12), { parentHash: 2n })])
    expect([view.blockCount, view.engineHashCount, counts.unknownParents]).toEqual([0, 0, 1])
  })

  test.each([
    { tokens: 8, hashes: 2, blocks: 2, names: 2 },
    { tokens: 8, hashes: 1, blocks: 2, names: 0 },
    { tokens: 4, hashes: 3, blocks: 1, names: 0 },
    { tokens: 0, hashes: 0, blocks: 0, names: 0 },
  ])(
    '$tokens tokens with $hashes hashes add $blocks blocks and $names names',
    ({ tokens, hashes, blocks, names }) => {
      const { view, counts } = rig()
      view.apply([
        stored(
          Array.from({ length: hashes }, (_, index) => BigInt(index + 1)),
          range(1, 8).subarray(0, tokens),
        ),
      ])
      expect([view.blockCount, view.engineHashCount]).toEqual([blocks, names])
      expect(counts.misalignedEvents).toBe(blocks === names ? 0 : 1)
    },
  )

  test('of overlapping pairs hash like the flat tokens', () => {
    const pairs = Array.from({ length: 16 }, (_, index) => [index + 1, index + 2])
    const { view } = rig({ blockSizeTokens: 16 })
    view.apply(decodeKvBatch(encode([1, [['BlockStored', [9], null, pairs, 16]]])).events)
    expect(view.has(chainBlockHashes(range(1, 16), 16)[0] as bigint)).toBe(true)
  })

  test('with another block size than the registered one are reported once and indexed by the registered one', () => {
    const { view, counts, warnings } = rig()
    const other = { blockSizeTokens: 8 }
    view.apply([stored([1n], range(1, 8), other), stored([2n], range(1, 8), other)])
    expect(view.blockCount).toBe(2)
    expect(counts.blockSizeMismatches).toBe(2)
    expect(warnings.filter((message) => message.includes('block size'))).toHaveLength(1)
  })

  test('two engines that hash differently leave the same blocks', () => {
    const [one, other] = [rig().view, rig().view]
    one.apply([stored([1n, 2n], range(1, 8))])
    other.apply([stored([91n], range(1, 4)), stored([92n], range(5, 8), { parentHash: 91n })])
    expect(held(one)).toEqual(held(other))
  })
})

describe('removed blocks', () => {
  test('leave the view, and unknown ones change nothing', () => {
    const { view } = rig()
    view.apply([stored([1n, 2n], range(1, 8)), removed([2n, 77n])])
    expect(held(view).slice(0, 2)).toEqual([true, false])
    expect(view.engineHashCount).toBe(1)
  })

  test('stay while another engine hash stands for the same tokens, as a copy under another salt does', () => {
    const { view } = rig()
    view.apply([stored([1n], range(1, 4)), stored([2n], range(1, 4)), stored([3n], range(1, 4))])
    view.apply([removed([1n]), removed([3n])])
    expect(view.blockCount).toBe(1)
    view.apply([removed([2n])])
    expect(view.blockCount).toBe(0)
  })

  test('that were stored twice under one hash go with the first removal', () => {
    const { view } = rig()
    view.apply([stored([1n], range(1, 4)), stored([1n], range(1, 4)), removed([1n])])
    expect([view.blockCount, view.engineHashCount]).toEqual([0, 0])
  })

  test('that first came without a name can be removed once they got one', () => {
    const { view } = rig()
    view.apply([stored([5n], range(1, 8)), stored([1n], range(1, 4)), removed([1n])])
    expect(held(view).slice(0, 2)).toEqual([false, true])
  })

  test('an engine hash that now stands for other tokens lets go of the old ones', () => {
    const { view } = rig()
    view.apply([stored([1n], range(1, 4)), stored([1n], range(11, 14))])
    expect(view.blockCount).toBe(1)
    expect(view.has(chain[0] as bigint)).toBe(false)
  })
})

describe('tiers', () => {
  test.each(['CPU', 'CPU_PINNED', 'DISK', 'STORAGE', 'EXTERNAL'])(
    '%s is not the device, neither stored nor removed',
    (medium) => {
      const { view, counts } = rig()
      view.apply([
        stored([1n], range(1, 4)),
        stored([2n], range(1, 8).subarray(4), { medium }),
        removed([1n], { medium }),
      ])
      expect(held(view).slice(0, 2)).toEqual([true, false])
      expect(counts.otherTiers).toBe(2)
    },
  )

  test('a device that names itself is the device', () => {
    const { view } = rig()
    view.apply([stored([1n], range(1, 4), { medium: 'GPU' })])
    expect(view.blockCount).toBe(1)
    view.apply([removed([1n], { medium: 'GPU' })])
    expect(view.blockCount).toBe(0)
  })

  test('blocks on another host do not count', () => {
    const { view } = rig()
    view.apply([stored([1n], range(1, 4), { isRemote: true })])
    expect(view.blockCount).toBe(0)
  })
})

describe('cache groups of hybrid models', () => {
  const tokens = range(1, 3840)
  const engineHashes = [1n, 2n, 3n, 4n, 5n]
  const attention = stored(engineHashes, tokens, { groupKind: 'mla_attention', groupIndex: 3 })
  const mamba = [0, 1, 2].map((groupIndex) => stored([5n], tokens, { groupKind: 'mamba', groupIndex }))

  test.each([
    ['first', [attention, ...mamba]],
    ['last', [...mamba, attention]],
  ])('are told apart with attention %s: exactly its five blocks, all hittable', (_, events) => {
    const { view, counts, warnings } = rig({ blockSizeTokens: 768 })
    view.apply(events)
    const second = range(3841, 7680)
    view.apply([
      stored([6n, 7n, 8n, 9n, 10n], second, { parentHash: 5n, groupKind: 'mla_attention', groupIndex: 3 }),
    ])
    expect([...chainBlockHashes(range(1, 7680), 768)].every((hash) => view.has(hash))).toBe(true)
    expect([view.blockCount, view.engineHashCount, counts.otherGroups]).toEqual([10, 10, 3])
    expect(warnings.filter((message) => message.includes('cache group'))).toHaveLength(1)
  })

  test('a removal of another group removes nothing of attention', () => {
    const { view } = rig({ blockSizeTokens: 768 })
    view.apply([...mamba, attention, removed([5n], { groupIndex: 1 })])
    expect(view.blockCount).toBe(5)
    view.apply([removed([5n], { groupIndex: 3 })])
    expect(view.blockCount).toBe(4)
  })

  test.each(['full_attention', 'mla_attention', 'sink_full_attention', null])(
    '%s is indexed',
    (groupKind) => {
      const { view } = rig()
      view.apply([stored([1n], range(1, 4), { groupKind })])
      expect(view.blockCount).toBe(1)
    },
  )

  test.each(['mamba', 'sliding_window', 'encoder_only', 'of_tomorrow'])('%s is not', (groupKind) => {
    const { view } = rig()
    view.apply([stored([1n], range(1, 4), { groupKind })])
    expect(view.blockCount).toBe(0)
  })
})

describe('clearing', () => {
  test('a hundred blocks leaves no overlap here and all of it elsewhere', () => {
    const { index, counts, view } = rig()
    const other = new CacheView({
      index,
      blockSizeTokens: 4,
      engineHashesMax: 1000,
      counts,
      workerId: 'x',
      rank: 0,
    })
    const prompt = range(1, 400)
    const engineHashes = Array.from({ length: 100 }, (_, block) => BigInt(block + 1))
    const overlaps = () => {
      const found = new Uint32Array(index.targetCount)
      index.match(chainBlockHashes(prompt, 4), found)
      return [found[view.target], found[other.target]]
    }
    for (const each of [view, other]) each.apply([stored(engineHashes, prompt)])
    expect(overlaps()).toEqual([100, 100])
    view.apply([cleared])
    expect(overlaps()).toEqual([0, 100])
    view.apply([stored([1n, 2n], prompt.subarray(0, 8))])
    expect(overlaps()).toEqual([2, 100])
  })

  test('resets blocks and names, so that later children have no parent', () => {
    const { view, counts } = rig()
    view.apply([stored([1n], range(1, 4)), cleared, stored([2n], range(5, 8), { parentHash: 1n })])
    expect([view.blockCount, view.engineHashCount, counts.unknownParents]).toEqual([0, 0, 1])
  })

  test('leaves other views alone', () => {
    const { index, counts, view } = rig()
    const other = new CacheView({
      index,
      blockSizeTokens: 4,
      engineHashesMax: 10,
      counts,
      workerId: 'x',
      rank: 0,
    })
    for (const each of [view, other]) each.apply([stored([1n, 2n], range(1, 8))])
    view.apply([cleared])
    expect([view.blockCount, other.blockCount]).toEqual([0, 2])
  })
})

describe('bounds', () => {
  test('a full index refuses the rest of an event, counts it, and names nothing of it', () => {
    const { view, counts, warnings } = rig({ blocksMax: 2 })
    view.apply([stored([1n, 2n, 3n, 4n], range(1, 16))])
    expect([view.blockCount, view.engineHashCount, counts.refusedBlocks]).toEqual([2, 2, 2])
    expect(warnings).toHaveLength(1)
  })

  test('engine hashes are bounded, whatever they stand for', () => {
    const { view, counts } = rig({ engineHashesMax: 3 })
    for (let hash = 1n; hash <= 6n; hash++) view.apply([stored([hash], range(1, 4))])
    expect([view.engineHashCount, counts.refusedBlocks]).toEqual([3, 3])
  })

  test('blocks that came without a name are bounded with the named ones', () => {
    const { view, counts } = rig({ engineHashesMax: 3 })
    view.apply([stored([1n], range(1, 20))])
    expect([view.blockCount, counts.refusedBlocks]).toEqual([3, 2])
    view.apply([stored([9n], range(31, 34))])
    expect([view.blockCount, counts.refusedBlocks]).toEqual([3, 3])
    // A name for a block that is held takes the place that the block had without it.
    view.apply([stored([7n], range(1, 4)), removed([7n]), stored([9n], range(31, 34))])
    expect([view.blockCount, view.engineHashCount, counts.refusedBlocks]).toEqual([3, 1, 3])
  })

  test('room that removals make is used', () => {
    for (const limits of [{ engineHashesMax: 2 }, { blocksMax: 2 }]) {
      const { view, counts } = rig(limits)
      view.apply([stored([1n, 2n, 3n], range(1, 12)), removed([1n, 2n]), stored([9n], range(1, 4))])
      expect([view.blockCount, counts.refusedBlocks, held(view)[0]]).toEqual([1, 1, true])
    }
  })
})

describe('any history', () => {
  // Two token ids and few engine hashes: one block under several hashes, hashes used again and orphans abound.
  const engineHashArb = fc.nat(7)
  const eventArb = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        type: fc.constant('stored' as const),
        names: fc.array(engineHashArb, { maxLength: 3 }),
        parent: fc.option(engineHashArb, { freq: 2 }),
        tokens: fc.array(fc.nat(1), { maxLength: 7 }),
        groupKind: fc.constantFrom(null, null, 'full_attention', 'mamba'),
        medium: fc.constantFrom(null, null, 'GPU', 'CPU'),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        type: fc.constant('removed' as const),
        names: fc.array(engineHashArb, { maxLength: 3 }),
        medium: fc.constantFrom(null, null, 'GPU', 'CPU'),
      }),
    },
    { weight: 1, arbitrary: fc.record({ type: fc.constant('cleared' as const) }) },
  )

  test('leaves what a plain list of names and blocks says', () => {
    fc.assert(
      fc.property(fc.array(eventArb, { maxLength: 60, size: 'max' }), (events) => {
        const { view } = rig({ blockSizeTokens: 2 })
        // What is in view is worked out anew each time: all that a name stands for, and what never had one.
        const blockOf = new Map<number, bigint>()
        const nameless = new Set<bigint>()
        const seen = new Set<bigint>()
        for (const event of events) {
          if (event.type === 'cleared') {
            view.apply([cleared])
            blockOf.clear()
            nameless.clear()
          } else if (event.type === 'removed') {
            view.apply([removed(event.names.map(BigInt), { medium: event.medium })])
            if (event.medium !== 'CPU') for (const name of event.names) blockOf.delete(name)
          } else {
            const { parent, groupKind, medium } = event
            const tokens = Uint32Array.from(event.tokens)
            const parentHash = parent === null ? null : BigInt(parent)
            view.apply([stored(event.names.map(BigInt), tokens, { parentHash, groupKind, medium })])
            const seed = parent === null ? 0n : blockOf.get(parent)
            if (groupKind === 'mamba' || medium === 'CPU' || seed === undefined) continue
            const blocks = [...chainBlockHashes(tokens, 2, seed)]
            for (const [position, block] of blocks.entries()) {
              seen.add(block)
              if (blocks.length === event.names.length) {
                blockOf.set(event.names[position] as number, block)
                nameless.delete(block)
              } else if (![...blockOf.values()].includes(block)) {
                nameless.add(block)
              }
            }
          }
          const expected = new Set([...blockOf.values(), ...nameless])
          expect([view.blockCount, view.engineHashCount]).toEqual([expected.size, blockOf.size])
          for (const block of seen) expect(view.has(block)).toBe(expected.has(block))
        }
      }),
      { numRuns: 300 },
    )
  })
})
