// The prefix index through its JavaScript face, in thread CPU time: what a router pays. Beside each row stands the TypeScript
// twin, and a set of hashes per worker, as most routers have it. The core alone, without Node, is measured by
// `make -C packages/native/cpp bench`, which also measures the floor of random reads.
import { seededRandom } from '@infera/fleet'
import {
  chainBlockHashes,
  createPrefixIndex,
  nativeStatus,
  newKvEventCounts,
  type PrefixIndex,
  tiers,
} from '@infera/native'
import { indexSettings, TwinPrefixIndex } from '@infera/native/internal'
import { perCallUs } from '../lib/cpu-time.js'
import { eventPayloads } from '../lib/event-payloads.js'
import { type Case, runSuite } from '../lib/suite.js'

const isQuick = process.argv.includes('--quick')
const status = nativeStatus()
if (!status.isNative) throw new Error(`there is nothing to compare: ${status.reason}`)

const random = seededRandom(1)
const chainBlocks = 128
const storedBlocks = isQuick ? 2 ** 18 : 2 ** 20
const storedName = isQuick ? '256k' : '1M'
const randomHashes = (count: number) =>
  BigUint64Array.from({ length: count }, () => {
    const high = BigInt(Math.floor(random() * 2 ** 32))
    return (high << 32n) | BigInt(Math.floor(random() * 2 ** 32))
  })
const chains = Array.from({ length: storedBlocks / chainBlocks }, () => randomHashes(chainBlocks))

const settings = { pairsMax: 2 ** 28, bytesMax: 2 ** 36 }
const makers: readonly (readonly [string, () => PrefixIndex])[] = [
  ['', () => createPrefixIndex(settings)],
  ['twin/', () => new TwinPrefixIndex(indexSettings(settings))],
]

function storeAll(index: PrefixIndex, targets: readonly number[]): number {
  const us = perCallUs(chains.length, (at) => {
    index.retain(targets[at % targets.length] as number, tiers.device, chains[at] as BigUint64Array)
  })
  return chainBlocks / us
}

/** Tables that have grown before, as those of a fleet that runs: what is stored was stored and removed once already. */
function storeCase(prefix: string, make: () => PrefixIndex): Case {
  return {
    name: `${prefix}store/${storedName}`,
    metric: 'M blocks/s',
    unit: 'M blocks/s',
    run: () => {
      const index = make()
      const targets = Array.from({ length: 64 }, () => index.addTarget({ isPrefixMonotone: true }))
      storeAll(index, targets)
      for (const target of targets) index.clear(target)
      // Half of it stays, so that tables keep their size while the sweep empties them.
      const kept = targets.map(() => index.addTarget({ isPrefixMonotone: true }))
      storeAll(index, kept)
      for (const [at, chain] of chains.entries()) {
        if (at % 2 === 0) index.release(kept[at % kept.length] as number, tiers.device, chain)
      }
      const half = chains.filter((_, at) => at % 2 === 0)
      const us = perCallUs(half.length, (at) => {
        index.retain(kept[(2 * at) % kept.length] as number, tiers.device, half[at] as BigUint64Array)
      })
      return chainBlocks / us
    },
    ...(prefix === '' ? { baseline: `twin/store/${storedName}` } : {}),
  }
}

function growCase(prefix: string, make: () => PrefixIndex): Case {
  return {
    name: `${prefix}store/${storedName} growing`,
    metric: 'M blocks/s',
    unit: 'M blocks/s',
    run: () => {
      const index = make()
      return storeAll(
        index,
        Array.from({ length: 64 }, () => index.addTarget()),
      )
    },
    ...(prefix === '' ? { baseline: `twin/store/${storedName} growing` } : {}),
  }
}

/** Whole payloads: decode, hash, engine hash to ours, index. */
const events = eventPayloads({ blocks: storedBlocks / 4, blocksPerEvent: 16, blockSizeTokens: 16, random })
function eventCase(prefix: string, make: () => PrefixIndex): Case {
  return {
    name: `${prefix}event/${storedName}`,
    metric: 'M blocks/s',
    unit: 'M blocks/s',
    run: () => {
      const index = make()
      const views = Array.from({ length: 64 }, () => index.createView({ blockSizeTokens: 16 }))
      const counts = newKvEventCounts()
      const us = perCallUs(events.length, (at) => {
        views[(at >> 2) % views.length]?.apply(events[at] as Uint8Array, counts)
      })
      if (counts.storedBlocks !== events.length * 16) throw new Error(`stored ${counts.storedBlocks}`)
      for (const view of views) view.close()
      return 16 / us
    },
    ...(prefix === '' ? { baseline: `twin/event/${storedName}` } : {}),
  }
}

/** Conversations of which every worker holds a part, over a background of other blocks. */
function matchCases(blocks: number, workers: number, calls: readonly [number, number, number]): Case[] {
  const query = chainBlockHashes(
    Uint32Array.from({ length: blocks * 16 }, () => random() * 150_000),
    16,
  )
  const overlaps = new Uint32Array(workers)
  const depthOf = (worker: number) => Math.floor(blocks * (0.25 + (0.75 * worker) / workers))
  const [indexes, sets] = [
    makers.map(([, make]) => {
      const index = make()
      for (let worker = 0; worker < workers; worker++) {
        const target = index.addTarget({ isPrefixMonotone: true })
        index.retain(target, tiers.device, query.subarray(0, depthOf(worker)))
        for (const chain of chains.slice(worker, worker + 8)) index.retain(target, tiers.device, chain)
      }
      return index
    }),
    Array.from({ length: workers }, (_, worker) => new Set(query.subarray(0, depthOf(worker)))),
  ] as const
  const name = `match/${blocks}x${workers}`
  const of = (index: PrefixIndex | undefined, count: number) => () =>
    perCallUs(count, () => index?.match(query, overlaps, { nowMs: 0 }))
  const shared = { metric: 'us a match', unit: 'us' }
  return [
    { ...shared, name, run: of(indexes[0], calls[0]), baseline: `sets/${name}` },
    { ...shared, name: `twin/${name}`, run: of(indexes[1], calls[1]), baseline: `sets/${name}` },
    {
      ...shared,
      name: `sets/${name}`,
      run: () =>
        perCallUs(calls[2], () => {
          let total = 0
          for (const held of sets) {
            for (const hash of query) {
              if (!held.has(hash)) break
              total++
            }
          }
          return total
        }),
    },
  ]
}

await runSuite('index', [
  ...makers.flatMap(([prefix, make]) => [
    storeCase(prefix, make),
    growCase(prefix, make),
    eventCase(prefix, make),
  ]),
  ...matchCases(256, 64, [20_000, 2_000, 30]),
  ...matchCases(4096, 512, [5_000, 200, 1]),
])
