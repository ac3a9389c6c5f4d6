// Random histories of an index: events of engines in small alphabets and in long chains, targets without a view, clocks.
import fc from 'fast-check'
import type { CacheViewOptions, PrefixIndexOptions, Tier } from '../../src/ports.js'
import {
  type ExtraKey,
  type Identity,
  noIdentity,
  type StoredEvent,
  type WireEvent,
  type WireShape,
  wireShapeArb,
} from './kv-wire.js'

/** A prompt: some tokens of an alphabet of two, or the beginning of one of three long chains that share their first half. */
export type Prompt =
  | { readonly tokens: readonly number[] }
  | { readonly trunk: number; readonly blockCount: number }

/** What is done to targets without a view. */
export type RawStep =
  | { readonly type: 'removeTarget'; readonly raw: number }
  | { readonly type: 'clearTarget'; readonly raw: number }
  | {
      readonly type: 'retain' | 'release'
      readonly raw: number
      readonly tier: Tier
      readonly prompt: Prompt
      /** Blocks of the prompt that are left out at its start. */
      readonly skip: number
    }

export type Step =
  | { readonly type: 'addView'; readonly options: Required<CacheViewOptions> }
  | { readonly type: 'restartView'; readonly view: number }
  | { readonly type: 'closeView' | 'clearView'; readonly view: number }
  | {
      readonly type: 'apply'
      readonly view: number
      readonly events: readonly WireEvent[]
      readonly shape: WireShape
      /** Share of the payload that arrives. */
      readonly share: number
    }
  | { readonly type: 'addTarget' }
  | RawStep
  | { readonly type: 'optimistic'; readonly target: number; readonly prompt: Prompt }
  | { readonly type: 'clock'; readonly byMs: number }
  | { readonly type: 'sweep'; readonly slots: number }

/** A step, and what is asked after it. */
export interface HistoryEntry {
  readonly step: Step
  readonly prompt: Prompt
  /** Which of the blocks seen so far are looked at. */
  readonly from: number
}

const trunkBlocks = 400
const trunkFork = 130
export const queryBlockSize = 2

const trunkTokens = [0, 1, 2].map((trunk) =>
  Uint32Array.from({ length: trunkBlocks * queryBlockSize }, (_, at) =>
    at < trunkFork * queryBlockSize ? at % 7 : (at % 7) + 100 * trunk,
  ),
)

export function tokensOf(prompt: Prompt): Uint32Array {
  return 'tokens' in prompt
    ? Uint32Array.from(prompt.tokens)
    : trunkTokens[prompt.trunk]!.subarray(0, prompt.blockCount * queryBlockSize)
}

const hashArb = fc
  .nat(5)
  .map((name) => (name < 4 ? BigInt(name) : 2n ** 63n + BigInt(name) * 0x1234_5678_9abn))
const mediumArb = fc.oneof(
  { weight: 12, arbitrary: fc.constantFrom(null, null, 'GPU', 'gpu') },
  { weight: 4, arbitrary: fc.constantFrom('CPU', 'CPU_PINNED', 'cpu_tier1', 'CPU_TIER2', 'DISK', 'STORAGE') },
  { weight: 1, arbitrary: fc.constantFrom('EXTERNAL', '', 'FLOPPY', 'GPU0') },
)
const placedArb = {
  medium: mediumArb,
  groupIndex: fc.constantFrom(null, null, null, null, null, 0, 1, -3),
  remoteBy: fc.constantFrom(...new Array<null>(12).fill(null), 'locality' as const, 'ownership' as const),
}
const extraKeyArb = fc.constantFrom<ExtraKey>(
  'a',
  'x',
  'x',
  '',
  7,
  2n ** 60n,
  -(2n ** 63n),
  ['image', 3],
  ['image', 3],
  Uint8Array.of(1, 2),
)
const extraKeysArb = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom<ExtraKey[] | null>(null, [], ['a'], ['x']) },
    { weight: 1, arbitrary: fc.array(extraKeyArb, { maxLength: 3 }) },
  ),
  { maxLength: 5 },
)
const identityArb: fc.Arbitrary<Identity> = fc.oneof(
  { weight: 5, arbitrary: fc.constant(noIdentity) },
  {
    weight: 2,
    arbitrary: fc.record({
      lora: fc.constantFrom(null, null, '', 'a', 'a', 'b'),
      loraId: fc.constantFrom(null, null, null, 0, 7, -1),
      salt: fc.constantFrom(null, null, null, '', 'x'),
      extraKeys: fc.oneof(fc.constant(null), extraKeysArb),
    }),
  },
)
const storedArb: fc.Arbitrary<StoredEvent> = fc.record({
  type: fc.constant('stored' as const),
  hashes: fc.array(hashArb, { maxLength: 4 }),
  parent: fc.oneof({ weight: 3, arbitrary: fc.constant(null) }, { weight: 2, arbitrary: hashArb }),
  tokens: fc.array(fc.nat(1), { maxLength: 9 }),
  blockSize: fc.constantFrom(2, 2, 2, null, 0, 16),
  groupKind: fc.constantFrom(
    null,
    null,
    null,
    'full_attention',
    'mla_attention',
    'sink_full_attention',
    'mamba',
  ),
  identity: identityArb,
  ...placedArb,
})
/** As many hashes as blocks of two tokens. */
const pairedArb: fc.Arbitrary<WireEvent> = fc
  .tuple(
    storedArb,
    fc.array(hashArb, { minLength: 1, maxLength: 4 }),
    fc.array(fc.nat(1), { minLength: 9, maxLength: 9 }),
  )
  .map(
    ([event, hashes, tokens]) =>
      ({ ...event, hashes, tokens: tokens.slice(0, hashes.length * 2) }) as WireEvent,
  )
const removedArb: fc.Arbitrary<WireEvent> = fc.record({
  type: fc.constant('removed' as const),
  hashes: fc.array(hashArb, { maxLength: 4, size: 'max' }),
  ...placedArb,
})
/** Runs of the long chains, as an engine reports them: names by place, the parent the name before. */
const runArb: fc.Arbitrary<WireEvent> = fc
  .record({
    isStored: fc.constantFrom(true, true, false),
    trunk: fc.nat(2),
    from: fc.oneof(
      { weight: 12, arbitrary: fc.constant(0) },
      { weight: 4, arbitrary: fc.constantFrom(5, 63, 64, 65, 129, 130, 200, 300) },
      { weight: 1, arbitrary: fc.nat(trunkBlocks - 1) },
    ),
    blockCount: fc.oneof(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: trunkBlocks })),
    medium: fc.constantFrom(null, null, null, 'CPU', 'DISK'),
  })
  .map(({ isStored, trunk, from, blockCount, medium }) => {
    const nameAt = (place: number) => BigInt(place < trunkFork ? 1000 + place : 1000 * (trunk + 2) + place)
    const until = Math.min(trunkBlocks, from + blockCount)
    const hashes = Array.from({ length: until - from }, (_, at) => nameAt(from + at))
    const placed = { hashes, medium, groupIndex: null, remoteBy: null }
    if (!isStored) return { type: 'removed', ...placed }
    const tokens = [...trunkTokens[trunk]!.subarray(from * queryBlockSize, until * queryBlockSize)]
    const parent = from === 0 ? null : nameAt(from - 1)
    return { type: 'stored', ...placed, tokens, parent, blockSize: queryBlockSize, groupKind: null }
  })
const storedMap = { type: 'BlockStored', block_hashes: [1], parent_block_hash: null, token_ids: [1, 2] }
export const eventArb: fc.Arbitrary<WireEvent> = fc.oneof(
  { weight: 8, arbitrary: pairedArb },
  { weight: 3, arbitrary: storedArb },
  { weight: 10, arbitrary: removedArb },
  { weight: 6, arbitrary: runArb },
  { weight: 1, arbitrary: fc.constant<WireEvent>({ type: 'cleared' }) },
  { weight: 1, arbitrary: fc.constant<WireEvent>({ type: 'unknown' }) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom<unknown>(
        7,
        [],
        ['BlockRemoved', 5],
        ['BlockStored', [1], null, [2 ** 33], 2],
        { type: 'BlockStored', block_hashes: [1], token_ids: [1, 2] },
        { type: '', block_hashes: [1] },
        ['BlockRemoved', [1], 7],
        { type: 'BlockRemoved', block_hashes: [1.5] },
        { ...storedMap, lora_name: 7 },
        { ...storedMap, lora_id: 1.5 },
        { ...storedMap, cache_salt: ['x'] },
        { ...storedMap, extra_keys: 'x' },
        ['BlockStored', [1], null, [1, 2], 2, null, null, { cache_salt: 7 }],
      )
      .map((event): WireEvent => ({ type: 'bad', event })),
  },
)

export const promptArb: fc.Arbitrary<Prompt> = fc.oneof(
  fc.record({ tokens: fc.array(fc.nat(1), { maxLength: 12 }) }),
  fc.record({ trunk: fc.nat(2), blockCount: fc.integer({ min: 0, max: trunkBlocks }) }),
)
const tierArb = fc.constantFrom<Tier>(0, 0, 1, 2, 3)

export const viewOptionsArb: fc.Arbitrary<Required<CacheViewOptions>> = fc.record({
  blockSizeTokens: fc.constantFrom(2, 2, 2, 2, 1, 3),
  engineHashesMax: fc.constantFrom(3, 8, 100_000, 100_000, 100_000, 100_000, 100_000),
  tiers: fc.oneof(
    { weight: 5, arbitrary: fc.constant<readonly Tier[]>([0, 1, 2, 3]) },
    { weight: 1, arbitrary: fc.constantFrom<readonly Tier[]>([0], [1, 2], []) },
  ),
  countsCopies: fc.boolean(),
  isPrefixMonotone: fc.constantFrom(true, true, false),
})

export const indexOptionsArb: fc.Arbitrary<Required<PrefixIndexOptions>> = fc.record({
  pairsMax: fc.constantFrom(5, 40, 300, ...new Array<number>(6).fill(2 ** 28)),
  bytesMax: fc.constant(2 ** 30),
  targetsMax: fc.constantFrom(2, 6, 80, 80),
  optimisticTtlMs: fc.constantFrom(0, 2000, 2000),
  optimisticBlocksMax: fc.constantFrom(4, 1000),
  verifyOneIn: fc.constantFrom(0, 0, 1, 3),
  seed: fc.nat(),
})

export const stepArb: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 20,
    arbitrary: fc.record({
      type: fc.constant('apply' as const),
      view: fc.nat(7),
      events: fc.array(eventArb, { minLength: 1, maxLength: 6 }),
      shape: wireShapeArb,
      share: fc.oneof(
        { weight: 12, arbitrary: fc.constant(1) },
        { weight: 1, arbitrary: fc.double({ min: 0, max: 1, noNaN: true }) },
      ),
    }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('addView' as const), options: viewOptionsArb }) },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constantFrom('restartView' as const, 'closeView' as const, 'clearView' as const),
      view: fc.nat(7),
    }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('addTarget' as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constantFrom('removeTarget' as const, 'clearTarget' as const),
      raw: fc.nat(3),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constantFrom('retain' as const, 'retain' as const, 'release' as const),
      raw: fc.nat(3),
      tier: tierArb,
      prompt: promptArb,
      skip: fc.nat(3),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ type: fc.constant('optimistic' as const), target: fc.nat(5), prompt: promptArb }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('clock' as const),
      byMs: fc.oneof(fc.integer({ min: -500, max: 2500 }), fc.constant(-4000)),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ type: fc.constant('sweep' as const), slots: fc.constantFrom(0, 1, 50, 5000) }),
  },
)

export const historyArb: fc.Arbitrary<readonly HistoryEntry[]> = fc.array(
  fc.record({ step: stepArb, prompt: promptArb, from: fc.nat(10_000) }),
  {
    maxLength: 50,
    size: 'max',
  },
)
