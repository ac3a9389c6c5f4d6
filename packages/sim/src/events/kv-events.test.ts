import { decode } from '@msgpack/msgpack'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { CacheMirror } from '../testing/cache-mirror.js'
import { SchedulerRig } from '../testing/scheduler-rig.js'
import { encodeBatch } from './kv-event-codec.js'

const rigOf = () => new SchedulerRig({ blocks: 300, blockSizeTokens: 4, sequencesMax: 8, stepTokensMax: 64 })
const prompt = (length: number, first = 0) => Array.from({ length }, (_, index) => first + index)

describe('a batch', () => {
  test('is an array of time, tagged maps with every key, and rank', () => {
    const top = 2n ** 64n - 1n
    const payload = encodeBatch(
      [
        { type: 'stored', hashes: [1n, top], parent: undefined, tokens: [1, 2, 3, 4] },
        { type: 'stored', hashes: [5n], parent: top, tokens: [5, 6] },
        { type: 'removed', hashes: [top] },
      ],
      { atSeconds: 1.5, rank: 0, blockSizeTokens: 2 },
    )
    const stored = {
      type: 'BlockStored',
      block_size: 2,
      lora_id: null,
      lora_name: null,
      medium: 'GPU',
      extra_keys: null,
      group_idx: 0,
      kv_cache_spec_kind: 'full_attention',
      kv_cache_spec_sliding_window: null,
    }
    expect(decode(payload, { useBigInt64: true })).toEqual([
      1.5,
      [
        { ...stored, block_hashes: [1n, top], parent_block_hash: null, token_ids: [1, 2, 3, 4] },
        { ...stored, block_hashes: [5n], parent_block_hash: top, token_ids: [5, 6] },
        { type: 'BlockRemoved', block_hashes: [top], medium: 'GPU', group_idx: 0 },
      ],
      0,
    ])
  })

  test('joins the blocks of one chain into one event, and is sent once for each step that changed something', () => {
    const rig = rigOf()
    const batches: unknown[][] = []
    rig.events.subscribe(({ payload }) => batches.push(decode(payload, { useBigInt64: true }) as unknown[]))
    rig.add(prompt(14), 4)
    rig.runToEnd()
    expect(
      batches.map(([, events]) => (events as { token_ids: number[] }[]).map((e) => e.token_ids.length)),
    ).toEqual([[12], [4]])
  })
})

describe('the event log', () => {
  test('numbers batches from 0 whether or not anybody listens', () => {
    const rig = rigOf()
    const empty = rig.events.snapshot(0)
    expect({ ...empty, payloads: [...empty.payloads] }).toEqual({ sequence: -1, payloads: [] })
    rig.add(prompt(9), 1)
    rig.runToEnd()
    const seen: number[] = []
    const unsubscribe = rig.events.subscribe(({ sequence }) => seen.push(sequence))
    expect(rig.events.snapshot(0).sequence).toBe(0)
    rig.add(prompt(9, 100), 1)
    rig.runToEnd()
    unsubscribe()
    rig.add(prompt(9, 200), 1)
    rig.runToEnd()
    expect(seen).toEqual([1])
    expect(rig.events.snapshot(0).sequence).toBe(2)
  })

  test('gives one function that subscribed twice two subscriptions', () => {
    const rig = rigOf()
    let calls = 0
    const listener = () => {
      calls++
    }
    const [first] = [rig.events.subscribe(listener), rig.events.subscribe(listener)]
    first?.()
    rig.add(prompt(9), 1)
    rig.runToEnd()
    expect(calls).toBe(1)
  })
})

describe('a snapshot', () => {
  test('comes in pieces within the bound, and rebuilds the cache', () => {
    const request = fc.record({ length: fc.integer({ min: 1, max: 60 }), text: fc.nat(3) })
    fc.assert(
      fc.property(fc.array(request, { minLength: 1, maxLength: 20 }), (requests) => {
        const rig = rigOf()
        for (const { length, text } of requests) {
          rig.add(prompt(length, text * 7), 1)
          rig.runToEnd()
        }
        const { payloads } = rig.events.snapshot(0)
        const mirror = new CacheMirror()
        for (const payload of payloads) {
          expect(payload.byteLength).toBeLessThanOrEqual(4096)
          mirror.apply(payload)
        }
        const cached = new Map<bigint, number[]>()
        rig.pool.forEachCached((_, hash, _parent, tokens) => cached.set(hash, [...tokens]))
        expect(mirror.blocks).toEqual(cached)
      }),
    )
  })

  test('of a long cache has several pieces', () => {
    const rig = rigOf()
    rig.add(prompt(1100), 1)
    rig.runToEnd()
    expect([...rig.events.snapshot(0).payloads].length).toBeGreaterThan(1)
    expect(rig.events.snapshot(1)).toEqual({ sequence: -1, payloads: [] })
  })

  test('tells of the cache as it was when it was asked for, whatever happens while it is walked', () => {
    const rig = rigOf()
    rig.add(prompt(1100), 1)
    rig.runToEnd()
    const cached = new Map<bigint, number[]>()
    rig.pool.forEachCached((_, hash, _parent, tokens) => cached.set(hash, [...tokens]))
    const mirror = new CacheMirror()
    let round = 0
    for (const payload of rig.events.snapshot(0).payloads) {
      mirror.apply(payload)
      // Evicts what was not told yet.
      rig.add(prompt(1100, 5000 * ++round), 1)
      rig.runToEnd()
    }
    expect(round).toBeGreaterThan(1)
    expect(mirror.blocks).toEqual(cached)
  })
})
