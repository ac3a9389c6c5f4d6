import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { tiers } from '../ports.js'
import { chainParentOf, markOf } from './chain-identity.js'
import { type BlockStored, decodeKvBatch } from './kv-event-decoder.js'

const hex = (text: string) => Uint8Array.from(Buffer.from(text, 'hex'))
const batchOf = (events: unknown[]) => encode([1.5, events, null], { useBigInt64: true })
const stored = (payload: Uint8Array) => decodeKvBatch(payload).events[0] as BlockStored

/** A short text as msgpack, in hex. */
const text = (value: string) => Buffer.from(encode(value)).toString('hex')

/** The encoder has no form for some values, and those cannot be on the wire either. */
function isEncodable(value: unknown): boolean {
  try {
    batchOf([value])
    return true
  } catch {
    return false
  }
}

// The wire vectors of the reference's event structs: arrays, maps, and arrays with everything in them.
const vectorA = hex('93cb3ff80000000000009197ab426c6f636b53746f726564926fccdec098010203040506070804c0c0c0')
const vectorB = hex(
  '93cb3ff80000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573926fccdeb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0c0',
)
const vectorFull = hex(
  '93cb3ff80000000000009397ab426c6f636b53746f72656492fbcf8000000000000001f99492010292020392030492040504c0a347505593ac426c6f636b52656d6f766564916faa4350555f50494e4e454491b0416c6c426c6f636b73436c656172656401',
)

const mapEvent = {
  type: 'BlockStored',
  block_hashes: [111, 222],
  parent_block_hash: null,
  token_ids: [1, 2, 3, 4, 5, 6, 7, 8],
  block_size: 4,
  lora_id: null,
}
const arrayEvent = ['BlockStored', [111, 222], null, [1, 2, 3, 4, 5, 6, 7, 8], 4, null, null]

describe('wire vectors', () => {
  const expected = {
    type: 'blockStored',
    blockHashes: BigUint64Array.of(111n, 222n),
    parentHash: null,
    tokens: Uint32Array.of(1, 2, 3, 4, 5, 6, 7, 8),
    blockSizeTokens: 4,
    tier: tiers.device,
    groupIndex: null,
    groupKind: 'unstated',
    chainParent: 0n,
    marks: new BigUint64Array(0),
  }

  test.each([
    ['array events', vectorA],
    ['map events', vectorB],
  ])('%s say the same', (_, payload) => {
    expect(decodeKvBatch(payload)).toEqual({
      events: [expected],
      unknownTagCount: 0,
      badEventCount: 0,
      isMalformed: false,
    })
  })

  test('signed hashes, overlapping token pairs, media and all three tags', () => {
    expect(decodeKvBatch(vectorFull).events).toEqual([
      {
        ...expected,
        blockHashes: BigUint64Array.of(BigInt.asUintN(64, -5n), 2n ** 63n + 1n),
        parentHash: BigInt.asUintN(64, -7n),
        tokens: Uint32Array.of(1, 2, 3, 4),
      },
      {
        type: 'blockRemoved',
        blockHashes: BigUint64Array.of(111n),
        tier: tiers.host,
        groupIndex: null,
      },
      { type: 'allBlocksCleared' },
    ])
  })
})

describe('shapes', () => {
  test('arrays, maps, arrays of maps and maps of maps decode alike, mixed in one batch too', () => {
    const [one] = decodeKvBatch(vectorA).events
    expect(decodeKvBatch(batchOf([arrayEvent, mapEvent])).events).toEqual([one, one])
    const asMap = encode({ ts: 1.5, events: [mapEvent, arrayEvent], data_parallel_rank: 3 })
    expect(decodeKvBatch(asMap).events).toEqual([one, one])
    expect(decodeKvBatch(encode([1.5, [mapEvent]])).events).toEqual([one])
  })

  test.each([4, 5, 7, 12, 15])('a stored event of %i elements decodes', (length) => {
    const full = [...arrayEvent, 'lora', [null], 3, 'full_attention', null, 'later', { a: 1 }, 7]
    const event = stored(batchOf([full.slice(0, length)]))
    expect(event.tokens).toHaveLength(8)
    expect(event.groupIndex).toBe(length > 9 ? 3 : null)
    expect(event.groupKind).toBe(length > 10 ? 'prefix' : 'unstated')
  })

  test('fields may come in any order, with strange ones between them', () => {
    const shuffled = {
      z: { a: [1, { b: 2 }] },
      ...Object.fromEntries(Object.entries(mapEvent).reverse()),
      y: 1.25,
    }
    expect(decodeKvBatch(batchOf([shuffled])).events).toEqual(decodeKvBatch(vectorB).events)
  })

  test('a byte string stands for the same hash as the integer of its last 8 bytes', () => {
    const digest = Uint8Array.from({ length: 32 }, (_, index) => index)
    const event = stored(
      batchOf([{ ...mapEvent, block_hashes: [digest, 0x18191a1b1c1d1e1fn], parent_block_hash: digest }]),
    )
    expect(event.blockHashes).toEqual(BigUint64Array.of(0x18191a1b1c1d1e1fn, 0x18191a1b1c1d1e1fn))
    expect(event.parentHash).toBe(0x18191a1b1c1d1e1fn)
  })

  test('a byte string of less than 8 bytes is a number too', () => {
    const [event] = decodeKvBatch(batchOf([['BlockRemoved', [Uint8Array.of(1, 2)]]])).events
    expect(event).toMatchObject({ blockHashes: BigUint64Array.of(0x102n) })
  })

  test('the largest token, and integers packed wider than they need', () => {
    const event = stored(batchOf([['BlockStored', [1n], null, [2 ** 32 - 1, 7n], 2n]]))
    expect([...event.tokens, event.blockSizeTokens]).toEqual([2 ** 32 - 1, 7, 2])
  })

  test.each([
    [null, tiers.device],
    ['GPU', tiers.device],
    ['gpu', tiers.device],
    ['CPU', tiers.host],
    ['Cpu_Pinned', tiers.host],
    ['CPU_TIER1', tiers.host],
    ['CPU_TIER2', tiers.host],
    ['DISK', tiers.disk],
    ['STORAGE', tiers.disk],
    ['EXTERNAL', tiers.remote],
    ['', null],
    ['GPU ', null],
    ['FLOPPY', null],
    ['dısk', null],
    ['diſk', null],
  ])('the medium %j is tier %j, stored and removed, in maps and arrays', (medium, tier) => {
    const events = [
      { ...mapEvent, medium },
      ['BlockStored', [111, 222], null, [1, 2], 4, null, medium],
      { type: 'BlockRemoved', block_hashes: [1], medium },
      ['BlockRemoved', [1], medium],
    ]
    const decoded = decodeKvBatch(batchOf(events)).events
    expect(decoded.map((event) => 'tier' in event && event.tier)).toEqual([tier, tier, tier, tier])
  })

  test('blocks elsewhere are remote, whatever their medium', () => {
    expect(stored(batchOf([{ ...mapEvent, locality: 'REMOTE' }])).tier).toBe(tiers.remote)
    expect(stored(batchOf([{ ...mapEvent, ownership: 'REMOTE', medium: 'CPU' }])).tier).toBe(tiers.remote)
    expect(stored(batchOf([{ ...mapEvent, ownership: 'REMOTE', medium: 'FLOPPY' }])).tier).toBe(tiers.remote)
    expect(stored(batchOf([{ ...mapEvent, locality: 'LOCAL', medium: 'CPU' }])).tier).toBe(tiers.host)
    expect(stored(batchOf([{ ...mapEvent, locality: 'remote' }])).tier).toBe(tiers.device)
  })

  test.each([
    ['full_attention', 'prefix'],
    ['mla_attention', 'prefix'],
    ['sink_full_attention', 'prefix'],
    ['mamba', 'other'],
    ['of_tomorrow', 'other'],
    ['', 'other'],
    [null, 'unstated'],
  ])('a group of kind %j is %s', (kind, groupKind) => {
    expect(stored(batchOf([{ ...mapEvent, kv_cache_spec_kind: kind }])).groupKind).toBe(groupKind)
  })

  test('of a field that comes twice the last counts, whatever was wrong with the first', () => {
    // {type, block_hashes: 5, block_hashes: [9], medium: "CPU", medium: nil}
    const twice = hex(
      `92c09185${text('type')}${text('BlockRemoved')}${text('block_hashes')}05${text('block_hashes')}9109` +
        `${text('medium')}${text('CPU')}${text('medium')}c0`,
    )
    expect(decodeKvBatch(twice).events).toEqual([
      { type: 'blockRemoved', tier: tiers.device, groupIndex: null, blockHashes: BigUint64Array.of(9n) },
    ])
  })

  test('of two lists of events in a batch the last counts', () => {
    const name = text('events')
    const lists = hex(`82${name}9291${text('NobodyKnows')}07${name}9191${text('AllBlocksCleared')}`)
    expect(decodeKvBatch(lists)).toEqual({
      events: [{ type: 'allBlocksCleared' }],
      unknownTagCount: 0,
      badEventCount: 0,
      isMalformed: false,
    })
  })
})

describe('whose blocks they are', () => {
  const bytes = (value: string) => new TextEncoder().encode(value)
  const parentOf = (lora: string, salt: string) => chainParentOf(bytes(lora), bytes(salt))
  const mark = (value: unknown) => markOf(encode(value))
  const identityOf = (event: unknown) => {
    const { chainParent, marks } = stored(batchOf([event]))
    return { chainParent, marks: [...marks] }
  }
  const plain = { chainParent: 0n, marks: [] }

  test.each<[string, object, string, string]>([
    ['the adapter', { lora_name: 'a' }, 'a', ''],
    ['its number where nothing names it', { lora_id: 7 }, '#7', ''],
    ['its number beside an empty name', { lora_id: 7, lora_name: '' }, '#7', ''],
    ['its name rather than its number', { lora_id: 7, lora_name: 'a' }, 'a', ''],
    ['the salt of SGLang', { cache_salt: 'x' }, '', 'x'],
    ['the salt of vLLM', { extra_keys: [['x'], null] }, '', 'x'],
    ['adapter and salt of vLLM', { lora_name: 'a', extra_keys: [['a', 'x'], ['a']] }, 'a', 'x'],
    ['a salt that is called as the adapter', { lora_name: 'a', extra_keys: [['a', 'a'], ['a']] }, 'a', 'a'],
    ['an adapter in all keys', { extra_keys: [['a'], ['a']], lora_name: 'a' }, 'a', ''],
    ['its number in all keys', { lora_id: 7, extra_keys: [[7], [7]] }, '#7', ''],
    ['a salt said twice', { cache_salt: 'x', extra_keys: [['x'], null] }, '', 'x'],
  ])('%s decides where the chain begins', (_, fields, lora, salt) => {
    expect(identityOf({ ...mapEvent, ...fields })).toEqual({ chainParent: parentOf(lora, salt), marks: [] })
  })

  test.each<[string, object]>([
    ['an empty salt', { cache_salt: '' }],
    ['an empty name', { lora_name: '' }],
    ['the number 0', { lora_id: 0 }],
    ['nil', { lora_name: null, lora_id: null, cache_salt: null, extra_keys: null }],
    ['no keys', { extra_keys: [] }],
    ['keys that say nothing', { extra_keys: [null, []] }],
    ['an empty salt among the keys', { extra_keys: [[''], null] }],
  ])('%s is none', (_, fields) => {
    expect(identityOf({ ...mapEvent, ...fields })).toEqual(plain)
  })

  test('in arrays, position 7 is the adapter when it is a text and has the salt when it is a map', () => {
    expect(identityOf([...arrayEvent, 'a', null])).toEqual({ ...plain, chainParent: parentOf('a', '') })
    expect(identityOf([...arrayEvent, { other: [1], cache_salt: 'x' }])).toEqual({
      ...plain,
      chainParent: parentOf('', 'x'),
    })
    expect(identityOf([...arrayEvent, 'a', [['a', 'x']]])).toEqual({
      ...plain,
      chainParent: parentOf('a', 'x'),
    })
    for (const other of [7, ['a'], {}, true])
      expect(identityOf([...arrayEvent, other, 'full'])).toEqual(plain)
  })

  test('what is more than the adapter marks its block, whichever text the rest of the prompt has', () => {
    const image = ['digest', 3]
    expect(identityOf({ ...mapEvent, extra_keys: [null, [image]] }).marks).toEqual([0n, mark([image])])
    expect(identityOf({ ...mapEvent, lora_name: 'a', extra_keys: [['a'], ['a', image]] })).toEqual({
      chainParent: parentOf('a', ''),
      marks: [0n, mark(['a', image])],
    })
    // An image and a salt in the first block: the bytes of both.
    expect(identityOf({ ...mapEvent, extra_keys: [[image, 'x'], null] })).toEqual({
      chainParent: 0n,
      marks: [mark([image, 'x']), 0n],
    })
    expect(identityOf({ ...mapEvent, cache_salt: 'x', extra_keys: [['y'], null] }).marks).toEqual([
      mark(['y']),
      0n,
    ])
    expect(identityOf({ ...mapEvent, extra_keys: [null, 'x', 7] }).marks).toEqual([0n, mark('x'), mark(7)])
    expect(identityOf({ ...mapEvent, extra_keys: [null, [2n ** 63n]] }).marks).toHaveLength(2)
  })

  test('a chain that goes on has marks and no parent of its own; a text in its first block is no salt', () => {
    const event = { ...mapEvent, parent_block_hash: 5, lora_name: 'a', extra_keys: [['a', 'x'], ['a']] }
    expect(identityOf(event)).toEqual({ chainParent: 0n, marks: [mark(['a', 'x']), 0n] })
  })

  test('bytes that are no UTF-8 are a name like any other', () => {
    const payload = batchOf([{ ...mapEvent, lora_name: 'ab' }])
    const at = Buffer.from(payload).indexOf('ab', Buffer.from(payload).indexOf('lora_name'))
    payload.set([0xff, 0xfe], at)
    expect(stored(payload).chainParent).toBe(chainParentOf(Uint8Array.of(0xff, 0xfe), new Uint8Array(0)))
  })
})

describe('faults', () => {
  test('an unknown tag is counted and passed over', () => {
    const batch = decodeKvBatch(batchOf([['BlockMoved', 1, { a: 2 }], mapEvent, { type: 'Other' }]))
    expect(batch).toMatchObject({ unknownTagCount: 2, badEventCount: 0, isMalformed: false })
    expect(batch.events).toHaveLength(1)
  })

  test.each([
    ['a token id of 2^32', { ...mapEvent, token_ids: [2n ** 32n] }],
    ['a negative token id', { ...mapEvent, token_ids: [-1] }],
    ['tokens that are text', { ...mapEvent, token_ids: 'abc' }],
    ['an adapter that is a number', { ...mapEvent, lora_name: 7 }],
    ['a number of an adapter that is a text', { ...mapEvent, lora_id: '7' }],
    ['a salt that is a list', { ...mapEvent, cache_salt: ['x'] }],
    ['a salt within metadata that is a number', [...arrayEvent, { cache_salt: 7 }]],
    ['extra keys that are a text', { ...mapEvent, extra_keys: 'x' }],
    ['pairs and numbers mixed', { ...mapEvent, token_ids: [[1, 2], 3] }],
    ['no tokens', { ...mapEvent, token_ids: null }],
    ['no hashes', { ...mapEvent, block_hashes: null }],
    ['a hash that is a fraction', { ...mapEvent, block_hashes: [1.5] }],
    ['a hash of no bytes', { ...mapEvent, block_hashes: [new Uint8Array(0)] }],
    ['no word on its parent', { type: 'BlockStored', block_hashes: [1], token_ids: [1] }],
    ['a fractional token', { ...mapEvent, token_ids: [1.5] }],
    ['numbers and pairs mixed', { ...mapEvent, token_ids: [1, [2, 3]] }],
    ['a pair of nothing', { ...mapEvent, token_ids: [[]] }],
    ['a textual hash', { ...mapEvent, block_hashes: ['1'] }],
    ['hashes that are no list', ['BlockRemoved', 5]],
    ['a medium that is a number', ['BlockRemoved', [5], 5]],
    ['a tag that is no text', [1, [1]]],
    ['no tag', { block_hashes: [1] }],
    ['not a container', 7],
    ['an empty array', []],
    ['an empty tag', { ...mapEvent, type: '' }],
    ['a tag of 65 bytes', [`${'é'.repeat(32)}e`]],
    ['a tag that is taken back', [null, 'BlockRemoved']],
  ])('an event with %s is counted, and the others stand', (_, bad) => {
    const batch = decodeKvBatch(batchOf([mapEvent, bad, arrayEvent]))
    expect(batch).toMatchObject({ unknownTagCount: 0, badEventCount: 1, isMalformed: false })
    expect(batch.events).toHaveLength(2)
  })

  test('nesting is counted from the event: its fields lie one deeper, and 64 levels below it are sound', () => {
    const nested = (levels: number) => hex(`92c09193${text('Other')}c0${'91'.repeat(levels)}c0`)
    expect(decodeKvBatch(nested(63))).toMatchObject({ unknownTagCount: 1, isMalformed: false })
    expect(decodeKvBatch(nested(64))).toMatchObject({ unknownTagCount: 0, isMalformed: true })
  })

  test.each<[string, Uint8Array]>([
    ['of no bytes', new Uint8Array(0)],
    ['that is a number', encode(7)],
    ['that is an array without events', encode([1.5])],
    ['that is a map without events', encode({ ts: 1.5 })],
    ['whose events are a map', encode([1.5, {}])],
    ['that promises 2^32-1 events', hex('92c0ddffffffff')],
    ['of nested promises', hex(`92c0${'dd00ffffff'.repeat(50)}`)],
    ['nested deeper than any engine does', hex(`92c0${'91'.repeat(5000)}c0`)],
  ])('a payload %s is malformed as a whole', (_, payload) => {
    expect(decodeKvBatch(payload)).toEqual({
      events: [],
      unknownTagCount: 0,
      badEventCount: 0,
      isMalformed: true,
    })
  })

  test('whatever msgpack value stands between events leaves its neighbours intact', () => {
    const removedEvent = { type: 'BlockRemoved', block_hashes: [2] }
    fc.assert(
      fc.property(fc.anything({ withBigInt: false, maxDepth: 3 }), (value) => {
        const events = [['BlockRemoved', [1]], { ...removedEvent, extra: value }, value, ['AllBlocksCleared']]
        fc.pre(isEncodable(events))
        const batch = decodeKvBatch(batchOf(events))
        expect(batch.isMalformed).toBe(false)
        expect(batch.events[0]).toMatchObject({ type: 'blockRemoved', blockHashes: BigUint64Array.of(1n) })
        expect(batch.events[1]).toMatchObject({ type: 'blockRemoved', blockHashes: BigUint64Array.of(2n) })
        expect(batch.events.at(-1)).toEqual({ type: 'allBlocksCleared' })
        expect(batch.events.length + batch.badEventCount + batch.unknownTagCount).toBe(4)
      }),
    )
  })

  test('a payload cut off anywhere is malformed as a whole', () => {
    for (const payload of [vectorA, vectorB, vectorFull]) {
      for (let length = 0; length < payload.length; length++) {
        expect(decodeKvBatch(payload.subarray(0, length))).toMatchObject({ isMalformed: true, events: [] })
      }
    }
  })

  test('bytes after the batch make it malformed', () => {
    expect(decodeKvBatch(Uint8Array.of(...vectorA, 0)).isMalformed).toBe(true)
  })

  test('random bytes, and vectors with random bytes changed, never throw', () => {
    const changedArb = fc
      .tuple(
        fc.constantFrom(vectorA, vectorB, vectorFull),
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }),
      )
      .map(([vector, changes]) => {
        const bytes = Uint8Array.from(vector)
        for (const [at, value] of changes) bytes[at % bytes.length] = value
        return bytes
      })
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 200 }), changedArb), (bytes) => {
        const batch = decodeKvBatch(bytes)
        if (batch.isMalformed) expect(batch.events).toEqual([])
      }),
      { numRuns: 2000 },
    )
  })
})
