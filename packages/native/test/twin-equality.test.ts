// The native index against its twin and the slow model, through the public contract.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { chainBlockHashes } from '../src/block-hash.js'
import { newKvEventCounts } from '../src/event-counts.js'
import { nativeStatus } from '../src/load-addon.js'
import type { PrefixIndexOptions } from '../src/ports.js'
import { createPrefixIndex } from '../src/prefix-index.js'
import { chainBlockHashes as twinChainBlockHashes } from '../src/twin/block-hash.js'
import { TwinPrefixIndex } from '../src/twin/prefix-index.js'
import {
  eventArb,
  historyArb,
  indexOptionsArb,
  promptArb,
  tokensOf,
  viewOptionsArb,
} from './support/histories.js'
import { encodeBatch, wireShapeArb } from './support/kv-wire.js'
import { play } from './support/lockstep.js'
import { seal, sortedBlocks } from './support/snapshots.js'

const { isNative, reason } = nativeStatus()
if (!isNative) console.warn(`native code is not compared with its twin: ${reason}`)

const createNative = (options: PrefixIndexOptions) => createPrefixIndex(options)
const createTwin = (options: PrefixIndexOptions) => new TwinPrefixIndex(options)

describe.skipIf(!isNative)('native code and its twin', () => {
  test('answer alike, and as plain maps do, after any history; their snapshots are interchangeable', () => {
    fc.assert(
      fc.property(indexOptionsArb, viewOptionsArb, historyArb, (options, view, history) => {
        play([createNative, createTwin], options, view, history)
      }),
      { numRuns: 100 },
    )
  })

  test('read payloads with changed bytes alike', () => {
    const changeArb = fc.tuple(fc.nat(), fc.nat(255))
    const payloadArb = fc
      .tuple(
        fc.array(eventArb, { minLength: 1, maxLength: 3 }),
        wireShapeArb,
        fc.array(changeArb, { maxLength: 3 }),
        fc.constantFrom(0, 0, 0, 1, 5),
      )
      .map(([events, shape, changes, cut]) => {
        const bytes = encodeBatch(events, shape)
        for (const [at, value] of changes) bytes[at % bytes.length] = value
        return bytes.subarray(0, bytes.length - cut)
      })
    const anyBytesArb = fc.oneof(
      { weight: 8, arbitrary: payloadArb },
      { weight: 1, arbitrary: fc.uint8Array({ maxLength: 60 }) },
    )
    fc.assert(
      fc.property(
        viewOptionsArb,
        fc.array(anyBytesArb, { maxLength: 30, size: 'max' }),
        promptArb,
        (options, payloads, prompt) => {
          const indexes = [createNative({ verifyOneIn: 0 }), createTwin({})]
          const hashes = chainBlockHashes(tokensOf(prompt), 2)
          const lanes = indexes.map((index) => ({
            index,
            view: index.createView(options),
            counts: newKvEventCounts(),
          }))
          for (const payload of payloads) {
            const [native, twin] = lanes.map(({ index, view, counts }) => {
              view.apply(payload, counts)
              const overlaps = new Uint32Array(4)
              index.match(hashes, overlaps, { nowMs: 0, levels: 4 })
              const { names, nameless } = view.stats()
              return { counts: { ...counts }, overlaps, names, nameless, pairs: index.stats().pairs }
            })
            expect(native).toEqual(twin)
          }
          const [native, twin] = lanes.map(({ index }) => index.snapshot())
          const restored = createTwin({})
          restored.restore(native!)
          expect(native!.length).toBe(twin!.length)
          expect(sortedBlocks(native!)).toEqual(sortedBlocks(twin!))
        },
      ),
      { numRuns: 200 },
    )
  })

  test('refuse the same snapshots, whichever bytes of them are changed, and stay empty', () => {
    const source = createTwin({})
    for (let target = 0; target < 5; target++) source.addTarget({ isPrefixMonotone: target % 2 === 0 })
    for (const [target, tier] of [
      [0, 0],
      [1, 0],
      [2, 0],
      [2, 3],
      [4, 1],
    ] as const) {
      source.retain(target, tier, BigUint64Array.of(1n, 2n, 3n))
      source.retain(target, tier, BigUint64Array.of(2n))
    }
    source.removeTarget(3)
    const snapshot = source.snapshot()
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(snapshot.length - 1), fc.nat(255)), { maxLength: 2 }),
        fc.constantFrom(0, 0, 0, 1, 24),
        fc.boolean(),
        fc.record({ targetsMax: fc.constantFrom(3, 4096), pairsMax: fc.constantFrom(5, 1000) }),
        (changes, cut, isSealed, options) => {
          const bytes = snapshot.slice(0, snapshot.length - cut)
          for (const [at, value] of changes) bytes[at % bytes.length] = value
          if (isSealed) seal(bytes)
          const [native, twin] = [createNative(options), createTwin(options)].map((index) => {
            let code = 'none'
            try {
              index.restore(bytes)
            } catch (error) {
              code = String((error as { code?: unknown }).code)
              expect(index.targetCount).toBe(0)
              expect(index.stats().pairs).toBe(0)
            }
            return {
              code,
              targets: index.targetCount,
              pairs: index.stats().pairs,
              snapshot: sortedBlocks(index.snapshot()),
            }
          })
          expect(native).toEqual(twin)
        },
      ),
      { numRuns: 2000 },
    )
  })

  test('hash alike, whatever the block size and the parent', () => {
    fc.assert(
      fc.property(
        fc.uint32Array({ maxLength: 300 }),
        fc.oneof(fc.integer({ min: -1, max: 70 }), fc.constantFrom(16, 32, 64)),
        fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
        (tokens, blockSizeTokens, parent) => {
          expect(chainBlockHashes(tokens, blockSizeTokens, parent)).toEqual(
            twinChainBlockHashes(tokens, blockSizeTokens, parent),
          )
        },
      ),
      { numRuns: 500 },
    )
    const long = Uint32Array.from({ length: 20_000 }, (_, at) => Math.imul(at, 0x9e37_79b1) >>> 0)
    for (const size of [2047, 2048, 2049, 5000])
      expect(chainBlockHashes(long, size, 5n)).toEqual(twinChainBlockHashes(long, size, 5n))
  })
})
