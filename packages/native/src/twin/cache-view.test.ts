import { encode } from '@msgpack/msgpack'
import { describe, expect, test } from 'vitest'
import {
  encodeBatch,
  type RemovedEvent,
  type StoredEvent,
  type WireEvent,
} from '../../test/support/kv-wire.js'
import { newKvEventCounts } from '../event-counts.js'
import { type CacheViewOptions, type PrefixIndexOptions, type Tier, tiers } from '../ports.js'
import { chainBlockHashes } from './block-hash.js'
import { TwinPrefixIndex } from './prefix-index.js'

const { device, host, disk, remote } = tiers

function rig(
  options: Partial<CacheViewOptions> = {},
  { index = new TwinPrefixIndex() }: { index?: TwinPrefixIndex } = {},
) {
  const view = index.createView({ blockSizeTokens: 4, ...options })
  const counts = newKvEventCounts()
  return {
    index,
    view,
    counts,
    apply: (...events: WireEvent[]) => view.apply(encodeBatch(events), counts),
    blocks: (tier: Tier = device) => index.blocksOf(view.target, tier),
    /** Which of the blocks of the tokens 1, 2, 3, ... are in view, by place. */
    held: (tier: Tier = device) =>
      [...chain.keys()].filter((place) => index.has(view.target, tier, chain[place] as bigint)),
    names: () => view.stats().names,
  }
}

const bounded = (options: PrefixIndexOptions) => ({ index: new TwinPrefixIndex(options) })
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, at) => from + at)
/** Router hashes of the tokens 1, 2, 3, ... in blocks of 4. */
const chain = chainBlockHashes(Uint32Array.from(range(1, 40)), 4)
const placed = { medium: null, groupIndex: null, remoteBy: null }

function stored(
  hashes: readonly bigint[],
  tokens: readonly number[],
  more: Partial<StoredEvent> = {},
): StoredEvent {
  const rest = { parent: null, blockSize: null, groupKind: null }
  return { type: 'stored', ...placed, ...rest, hashes, tokens, ...more }
}
const removed = (hashes: readonly bigint[], more: Partial<RemovedEvent> = {}): RemovedEvent => ({
  type: 'removed',
  ...placed,
  hashes,
  ...more,
})
const cleared: WireEvent = { type: 'cleared' }

describe('stored blocks', () => {
  test('both wire vectors leave the two hashes of the specification in view', () => {
    for (const vector of [
      '93cb3ff80000000000009197ab426c6f636b53746f726564926fccdec098010203040506070804c0c0c0',
      '93cb3ff80000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573926fccdeb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0c0',
    ]) {
      const { view, index, counts, blocks } = rig()
      view.apply(Buffer.from(vector, 'hex'), counts)
      expect(blocks()).toBe(2)
      expect(
        [0x341839abbe30be0bn, 0x37b6de0623bdb5can].every((hash) => index.has(view.target, device, hash)),
      ).toBe(true)
    }
  })

  test('chain on from a parent that is known by its engine hash', () => {
    const { apply, held } = rig()
    apply(stored([1n, 2n], range(1, 8)), stored([3n], range(9, 12), { parent: 2n }))
    expect(held()).toEqual([0, 1, 2])
  })

  test('chain on whatever form their parent has: a digest named by a negative integer, too', () => {
    const { view, counts, held } = rig()
    const digest = Uint8Array.of(...new Array<number>(24).fill(9), 0x80, 0, 0, 0, 0, 0, 0, 1)
    const parent = -(2n ** 63n) + 1n
    const events = [
      ['BlockStored', [digest], null, [1, 2, 3, 4], 4],
      { type: 'BlockStored', block_hashes: [2], parent_block_hash: parent, token_ids: [5, 6, 7, 8] },
    ]
    view.apply(encode([1, events], { useBigInt64: true }), counts)
    expect(held()).toEqual([0, 1])
  })

  test('chain on from a parent that stands in another tier alone', () => {
    const { apply, held } = rig()
    apply(stored([1n], range(1, 4), { medium: 'CPU' }), stored([2n], range(5, 8), { parent: 1n }))
    expect([held(device), held(host)]).toEqual([[1], [0]])
  })

  test('of an unknown parent are dropped and counted', () => {
    const { apply, blocks, names, counts } = rig()
    apply(stored([3n], range(9, 12), { parent: 2n }))
    expect([blocks(), names(), counts.unknownParents]).toEqual([0, 0, 1])
  })

  test.each([
    { tokens: 8, hashes: 2, blockCount: 2, nameCount: 2, misaligned: 0 },
    { tokens: 8, hashes: 1, blockCount: 2, nameCount: 0, misaligned: 1 },
    { tokens: 4, hashes: 3, blockCount: 1, nameCount: 0, misaligned: 1 },
    { tokens: 3, hashes: 1, blockCount: 0, nameCount: 0, misaligned: 1 },
    { tokens: 0, hashes: 0, blockCount: 0, nameCount: 0, misaligned: 0 },
  ])(
    '$tokens tokens with $hashes hashes add $blockCount blocks and $nameCount names',
    ({ tokens, hashes, blockCount, nameCount, misaligned }) => {
      const { apply, blocks, names, counts, view } = rig()
      apply(stored(range(1, hashes).map(BigInt), range(1, tokens)))
      expect([blocks(), names(), counts.misalignedEvents]).toEqual([blockCount, nameCount, misaligned])
      expect([counts.storedEvents, counts.storedBlocks]).toEqual([1, blockCount])
      expect(view.stats().nameless).toBe(blockCount - nameCount)
    },
  )

  test('of overlapping pairs hash like the flat tokens', () => {
    const pairs = range(1, 16).map((token) => [token, token + 1])
    const { view, index, counts } = rig({ blockSizeTokens: 16 })
    view.apply(encode([1, [['BlockStored', [9], null, pairs, 16]]]), counts)
    const [hash] = chainBlockHashes(Uint32Array.from(range(1, 16)), 16)
    expect(index.has(view.target, device, hash as bigint)).toBe(true)
  })

  test('with another block size than the registered one are counted and indexed by the registered one', () => {
    const { apply, blocks, counts } = rig()
    apply(stored([1n], range(1, 8), { blockSize: 8 }), stored([2n], range(1, 8), { blockSize: 8 }))
    expect([blocks(), counts.blockSizeMismatches]).toEqual([2, 2])
  })

  test('two engines that hash differently leave the same blocks', () => {
    const [one, other] = [rig(), rig()]
    one.apply(stored([1n, 2n], range(1, 8)))
    other.apply(stored([91n], range(1, 4)), stored([92n], range(5, 8), { parent: 91n }))
    expect(one.held()).toEqual(other.held())
  })
})

describe('removed blocks', () => {
  test('leave the view, and unknown ones are counted and change nothing', () => {
    const { apply, held, names, counts } = rig()
    apply(stored([1n, 2n], range(1, 8)), removed([2n, 77n]))
    expect([held(), names(), counts.removedBlocks, counts.unknownRemovals]).toEqual([[0], 1, 1, 1])
  })

  test('stay while another engine hash stands for the same tokens, as a copy under another salt does', () => {
    const { apply, blocks } = rig()
    apply(stored([1n], range(1, 4)), stored([2n], range(1, 4)), stored([3n], range(1, 4)))
    apply(removed([1n]), removed([3n]))
    expect(blocks()).toBe(1)
    apply(removed([2n]))
    expect(blocks()).toBe(0)
  })

  test.each([
    { countsCopies: true, left: [1, 1, 0] },
    { countsCopies: false, left: [0, 0, 0] },
  ])(
    'that were stored three times under one hash go as `countsCopies` $countsCopies says',
    ({ countsCopies, left }) => {
      const { apply, blocks } = rig({ countsCopies })
      for (let copy = 0; copy < 3; copy++) apply(stored([1n], range(1, 4)))
      const found = left.map(() => {
        apply(removed([1n]))
        return blocks()
      })
      expect(found).toEqual(left)
    },
  )

  test('keep the copies that they have in other tiers', () => {
    const { apply, held } = rig()
    const onHost = { medium: 'CPU' }
    apply(stored([1n], range(1, 4)), stored([1n], range(1, 4), onHost), stored([1n], range(1, 4), onHost))
    apply(removed([1n]), removed([1n], onHost))
    expect([held(device), held(host)]).toEqual([[], [0]])
    apply(removed([1n], onHost))
    expect(held(host)).toEqual([])
  })

  test('that first came without a name can be removed once they got one', () => {
    const { apply, held, view } = rig()
    apply(stored([5n], range(1, 8)), stored([1n], range(1, 4)), removed([1n]))
    expect([held(), view.stats().nameless]).toEqual([[1], 1])
  })

  test('an engine hash that now stands for other tokens lets go of the old ones, in all tiers and copies', () => {
    const { apply, blocks, index, view, names } = rig()
    apply(stored([1n], range(1, 4)), stored([1n], range(1, 4)), stored([1n], range(1, 4), { medium: 'DISK' }))
    apply(stored([1n], range(11, 14)))
    expect([blocks(device), blocks(disk), names()]).toEqual([1, 0, 1])
    expect(index.has(view.target, device, chain[0] as bigint)).toBe(false)
    apply(removed([1n]))
    expect([blocks(device), names()]).toEqual([0, 0])
  })
})

describe('tiers', () => {
  test.each<[string, Tier]>([
    ['GPU', device],
    ['CPU', host],
    ['CPU_PINNED', host],
    ['DISK', disk],
    ['STORAGE', disk],
    ['EXTERNAL', remote],
  ])('%s is tier %d, stored and removed, whatever happens in the others', (medium, tier) => {
    const { apply, held } = rig()
    apply(stored([1n, 2n], range(1, 8), { medium }), removed([2n], { medium }))
    const others = ([0, 1, 2, 3] as const).filter((each) => each !== tier)
    expect([held(tier), ...others.map(held)]).toEqual([[0], [], [], []])
    apply(stored([1n], range(1, 4), { medium: medium === 'DISK' ? 'CPU' : 'DISK' }))
    expect(held(tier)).toEqual([0])
  })

  test('blocks on another host are remote', () => {
    const { apply, held } = rig()
    apply(stored([1n], range(1, 4), { remoteBy: 'locality' }), removed([1n], { remoteBy: 'ownership' }))
    apply(stored([2n], range(1, 4), { remoteBy: 'ownership' }))
    expect([held(device), held(remote)]).toEqual([[], [0]])
  })

  test('that are not indexed, and media that nobody knows, are counted and passed over', () => {
    const { apply, blocks, counts } = rig({ tiers: [device, disk] })
    for (const medium of ['CPU', 'FLOPPY'])
      apply(stored([1n], range(1, 4), { medium }), removed([1n], { medium }))
    expect([blocks(device), blocks(host), counts.otherTiers, counts.storedEvents]).toEqual([0, 0, 4, 0])
  })

  test('hashes without tokens move known names, and unknown ones are counted', () => {
    const { apply, held, counts } = rig()
    apply(stored([1n, 2n], range(1, 8)))
    apply(stored([2n, 77n, 1n], [], { medium: 'CPU', parent: 99n, blockSize: 0 }))
    expect([held(device), held(host), counts.tokenlessUnknown, counts.storedBlocks]).toEqual([
      [0, 1],
      [0, 1],
      1,
      4,
    ])
    expect([counts.unknownParents, counts.blockSizeMismatches]).toEqual([0, 0])
    apply(removed([1n, 2n]), stored([3n], range(9, 12), { parent: 2n }))
    expect([held(device), held(host)]).toEqual([[2], [0, 1]])
  })
})

describe('cache groups of hybrid models', () => {
  const tokens = range(1, 3840)
  const attention = stored([1n, 2n, 3n, 4n, 5n], tokens, { groupKind: 'mla_attention', groupIndex: 3 })
  const mamba = [0, 1, 2].map((groupIndex) => stored([5n], tokens, { groupKind: 'mamba', groupIndex }))

  test.each([
    ['first', [attention, ...mamba]],
    ['last', [...mamba, attention]],
  ])('are told apart with attention %s: exactly its five blocks, all hittable', (_, events) => {
    const { apply, blocks, names, counts, index, view } = rig({ blockSizeTokens: 768 })
    const more = { parent: 5n, groupKind: 'mla_attention', groupIndex: 3 }
    apply(...events)
    apply(stored([6n, 7n, 8n, 9n, 10n], range(3841, 7680), more))
    const all = chainBlockHashes(Uint32Array.from(range(1, 7680)), 768)
    expect([...all].every((hash) => index.has(view.target, device, hash))).toBe(true)
    expect([blocks(), names(), counts.otherGroups]).toEqual([10, 10, 3])
  })

  test('a removal of another group removes nothing of attention, also after everything was cleared', () => {
    const { apply, blocks, counts } = rig({ blockSizeTokens: 768 })
    apply(...mamba, cleared, attention, removed([5n], { groupIndex: 1 }))
    expect([blocks(), counts.removedEvents]).toEqual([5, 0])
    apply(removed([5n], { groupIndex: 3 }))
    expect(blocks()).toBe(4)
  })

  test('a group number that comes with a prefix kind is no longer ignored', () => {
    const { apply, blocks } = rig()
    apply(stored([1n], range(1, 4), { groupKind: 'mamba', groupIndex: 7 }))
    apply(
      stored([1n], range(1, 4), { groupKind: 'full_attention', groupIndex: 7 }),
      removed([1n], { groupIndex: 7 }),
    )
    expect(blocks()).toBe(0)
  })

  test('at most 256 ignored numbers are remembered', () => {
    const { apply, counts } = rig()
    for (const groupIndex of range(0, 299))
      apply(stored([1n], range(1, 4), { groupKind: 'mamba', groupIndex }))
    apply(removed([1n], { groupIndex: 255 }), removed([1n], { groupIndex: 256 }))
    expect([counts.otherGroups, counts.removedEvents]).toEqual([301, 1])
  })
})

describe('clearing', () => {
  test('a hundred blocks leaves no overlap here and all of it elsewhere', () => {
    const index = new TwinPrefixIndex()
    const [one, other] = [rig({}, { index }), rig({}, { index })]
    const prompt = range(1, 400)
    const hashes = chainBlockHashes(Uint32Array.from(prompt), 4)
    const overlaps = () => {
      const found = new Uint32Array(index.targetCount)
      index.match(hashes, found, { nowMs: 0 })
      return [...found]
    }
    for (const each of [one, other]) each.apply(stored(range(1, 100).map(BigInt), prompt))
    expect(overlaps()).toEqual([100, 100])
    one.apply(cleared)
    expect(overlaps()).toEqual([0, 100])
    one.apply(stored([1n, 2n], prompt.slice(0, 8)))
    expect(overlaps()).toEqual([2, 100])
  })

  test('resets blocks of all tiers, names and copies, so that later children have no parent', () => {
    const { apply, blocks, names, counts, view } = rig()
    apply(stored([1n], range(1, 4)), stored([1n], range(1, 4)), stored([2n], range(1, 4), { medium: 'CPU' }))
    apply(stored([], range(21, 28)), cleared, stored([2n], range(5, 8), { parent: 1n }))
    expect([blocks(device), blocks(host), names(), view.stats().nameless]).toEqual([0, 0, 0, 0])
    expect([counts.unknownParents, counts.clearedEvents]).toEqual([1, 1])
    apply(stored([1n], range(1, 4)), removed([1n]))
    expect(blocks()).toBe(0)
  })

  test('a closed view takes nothing any more, and may be closed again', () => {
    const { apply, view, index, counts } = rig()
    apply(stored([1n], range(1, 4)))
    for (let again = 0; again < 2; again++) view.close()
    const next = index.addTarget()
    view.clear()
    apply(stored([1n], range(1, 4)))
    expect([next, index.blocksOf(next, device), counts.batches]).toEqual([view.target, 0, 1])
  })

  test('a closed view gives back all of its memory', () => {
    const { apply, view, index } = rig()
    const before = index.stats().ledgerBytes
    apply(stored(range(1, 10).map(BigInt), range(1, 40)), stored([1n], range(1, 4)), stored([], range(1, 99)))
    expect(index.stats().ledgerBytes).toBeGreaterThan(before)
    view.close()
    while (index.sweep(10_000));
    expect(index.stats().ledgerBytes).toBe(before)
  })
})

describe('bounds', () => {
  test('a full index refuses the rest of an event, counts it, and names nothing of it', () => {
    const { apply, blocks, names, counts } = rig({}, bounded({ pairsMax: 2 }))
    apply(stored([1n, 2n, 3n, 4n], range(1, 16)))
    expect([blocks(), names(), counts.storedBlocks, counts.refusedBlocks]).toEqual([2, 2, 2, 2])
  })

  test('engine hashes are bounded, whatever they stand for', () => {
    const { apply, names, counts } = rig({ engineHashesMax: 3 })
    for (let hash = 1n; hash <= 6n; hash++) apply(stored([hash], range(1, 4)))
    expect([names(), counts.refusedBlocks]).toEqual([3, 3])
    // A further tier of a name that stands is none more.
    apply(stored([1n], range(1, 4), { medium: 'CPU' }))
    expect([names(), counts.refusedBlocks]).toEqual([3, 3])
  })

  test('blocks that came without a name are bounded with the named ones', () => {
    const { apply, blocks, names, counts } = rig({ engineHashesMax: 3 })
    apply(stored([1n], range(1, 20)))
    expect([blocks(), counts.refusedBlocks]).toEqual([3, 2])
    apply(stored([9n], range(31, 34)))
    expect([blocks(), counts.refusedBlocks]).toEqual([3, 3])
    // A name for a block that is held takes the place that the block had without it.
    apply(stored([7n], range(1, 4)), removed([7n]), stored([9n], range(31, 34)))
    expect([blocks(), names(), counts.refusedBlocks]).toEqual([3, 1, 3])
  })

  test('room that removals make is used', () => {
    for (const { apply, blocks, counts, held } of [
      rig({ engineHashesMax: 2 }),
      rig({}, bounded({ pairsMax: 2 })),
    ]) {
      apply(stored([1n, 2n, 3n], range(1, 12)), removed([1n, 2n]), stored([9n], range(1, 4)))
      expect([blocks(), counts.refusedBlocks, held()]).toEqual([1, 1, [0]])
    }
  })

  test('without memory for its name a block is not held', () => {
    const { apply, names, blocks, counts, index } = rig({}, bounded({ bytesMax: 65_536 }))
    const hashes = range(1, 5000).map(BigInt)
    apply(stored(hashes, range(1, 20_000)))
    expect(counts.storedBlocks).toBeGreaterThan(100)
    expect(counts.storedBlocks + counts.refusedBlocks).toBe(5000)
    expect([names(), blocks()]).toEqual([counts.storedBlocks, counts.storedBlocks])
    expect(index.stats().ledgerBytes).toBeLessThanOrEqual(65_536)
    apply(removed(hashes))
    expect([names(), blocks(), index.stats().pairs]).toEqual([0, 0, 0])
  })

  test.each([{ blockSizeTokens: 0 }, { engineHashesMax: 0 }, { tiers: [4] }, { countCopies: true }])(
    'the options %j are refused, and use up no target',
    (options) => {
      const index = new TwinPrefixIndex()
      expect(() => rig(options as unknown as CacheViewOptions, { index })).toThrow(
        expect.objectContaining({ code: 'INFERA_NATIVE_OPTIONS' }),
      )
      expect(index.targetCount).toBe(0)
    },
  )
})

test('a malformed payload is counted and changes nothing', () => {
  const { view, apply, held, counts } = rig()
  apply(stored([1n], range(1, 4)))
  const payload = encodeBatch([removed([1n]), cleared])
  for (let length = 0; length < payload.length; length++) view.apply(payload.subarray(0, length), counts)
  expect([held(), counts.malformedBatches, counts.batches]).toEqual([[0], payload.length, payload.length + 1])
})
