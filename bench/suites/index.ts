// The prefix index through its JavaScript face, in thread CPU time: what a router pays. Beside each row stands the TypeScript
// twin, and a set of hashes per worker, as most routers have it. The core alone, without Node, is measured by
// `make -C packages/native/cpp bench`, which also measures the floor of random reads.
import { seededRandom } from '@infera/fleet'
import { createPrefixIndex, nativeStatus, newKvEventCounts, type PrefixIndex, tiers } from '@infera/native'
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

/**
 * Whole payloads: decode, hash, engine hash to ours, index. As above: from nothing, and in place of every other prompt of
 * an index that has its size.
 */
const events = eventPayloads({ blocks: storedBlocks * 1.5, blocksPerEvent: 16, blockSizeTokens: 16, random })
const eventsAtFirst = storedBlocks / 16
function eventCase(prefix: string, make: () => PrefixIndex, isGrowing: boolean): Case {
  const name = `event/${storedName}${isGrowing ? ' growing' : ''}`
  return {
    name: `${prefix}${name}`,
    metric: 'M blocks/s',
    unit: 'M blocks/s',
    run: () => {
      const index = make()
      const views = Array.from({ length: 64 }, () => index.createView({ blockSizeTokens: 16 }))
      const viewOf = (prompt: number) => views[prompt % views.length] as (typeof views)[number]
      const counts = newKvEventCounts()
      const apply = (begin: number, end: number) =>
        perCallUs(end - begin, (at) => {
          viewOf((begin + at) >> 2).apply(events.stores[begin + at] as Uint8Array, counts)
        })
      const growingUs = apply(0, eventsAtFirst)
      if (isGrowing) return 16 / growingUs
      for (let prompt = 0; prompt < eventsAtFirst / 4; prompt += 2) {
        viewOf(prompt).apply(events.removals[prompt] as Uint8Array, counts)
      }
      const us = apply(eventsAtFirst, events.stores.length)
      if (counts.storedBlocks !== events.stores.length * 16 || counts.unknownRemovals > 0)
        throw new Error(`stored ${counts.storedBlocks}, not removed ${counts.unknownRemovals}`)
      for (const view of views) view.close()
      return 16 / us
    },
    ...(prefix === '' ? { baseline: `twin/${name}` } : {}),
  }
}

/**
 * A fleet at work: prompts that begin with one of four system prompts which every worker holds, and of which one to three
 * workers hold more, down to some depth; other blocks beside them. The value is the median of the prompts.
 */
function matchCases(blocks: number, workers: number, queryCount: number): Case[] {
  const sharedBlocks = Math.min(256, blocks / 4)
  const below = (bound: number) => Math.floor(random() * bound)
  const systems = Array.from({ length: 4 }, () => randomHashes(sharedBlocks))
  const held = new Map<number, BigUint64Array[]>(
    Array.from({ length: workers }, (_, worker) => [
      worker,
      [...systems, ...chains.slice(worker * 8, worker * 8 + 8)],
    ]),
  )
  const queries = Array.from({ length: queryCount }, () => {
    const query = randomHashes(blocks)
    query.set(systems[below(4)] as BigUint64Array)
    for (let holders = 1 + below(3); holders > 0; holders--) {
      held.get(below(workers))?.push(query.slice(0, sharedBlocks + below(blocks - sharedBlocks + 1)))
    }
    return query
  })
  const overlaps = new Uint32Array(workers)
  const [native, twin] = makers.map(([, make]) => {
    const index = make()
    for (const lists of held.values()) {
      const target = index.addTarget({ isPrefixMonotone: true })
      const once = new Set(lists.flatMap((list) => [...list]))
      index.retain(target, tiers.device, BigUint64Array.from(once))
    }
    return index
  })
  const sets = [...held.values()].map((lists) => new Set(lists.flatMap((list) => [...list])))
  const name = `match/${blocks}x${workers}`
  // Wall time: single calls are shorter than the resolution of a thread's CPU clock, and a median forgets who was preempted.
  const p50 = (match: (query: BigUint64Array) => void, calls: number) => () => {
    const times = queries.flatMap((query) =>
      Array.from({ length: calls }, () => {
        const start = performance.now()
        match(query)
        return (performance.now() - start) * 1e3
      }),
    )
    return times.sort((one, other) => one - other)[times.length >> 1] as number
  }
  const matchOf = (index: PrefixIndex | undefined) => (query: BigUint64Array) => {
    index?.match(query, overlaps, { nowMs: 0 })
  }
  const walk = (query: BigUint64Array) => {
    for (const [worker, blocksHeld] of sets.entries()) {
      let depth = 0
      while (depth < query.length && blocksHeld.has(query[depth] as bigint)) depth++
      overlaps[worker] = depth
    }
  }
  const shared = { metric: 'p50', unit: 'us' }
  return [
    { ...shared, name, run: p50(matchOf(native), 50), baseline: `sets/${name}` },
    { ...shared, name: `twin/${name}`, run: p50(matchOf(twin), 10), baseline: `sets/${name}` },
    { ...shared, name: `sets/${name}`, run: p50(walk, 1) },
  ]
}

await runSuite('index', [
  ...makers.flatMap(([prefix, make]) => [
    storeCase(prefix, make),
    growCase(prefix, make),
    eventCase(prefix, make, false),
    eventCase(prefix, make, true),
  ]),
  ...matchCases(256, 64, 50),
  ...matchCases(4096, 512, 50),
])
