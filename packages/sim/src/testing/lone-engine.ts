import { BlockPool } from '../cache/block-pool.js'
import { digestToken } from '../content/kv-content.js'
import type { LanguageModel } from '../content/language-model.js'

/**
 * What a request must get, computed the slow and obvious way: nothing cached, nothing shared, nothing cut into chunks, and
 * everything computed anew for every token.
 */
export function answerAlone(
  model: LanguageModel,
  promptTokens: Uint32Array,
  options: { answerTokensMax: number; blockSizeTokens: number; requestSeed?: number },
): number[] {
  const { answerTokensMax, blockSizeTokens, requestSeed = 0 } = options
  const all = [...promptTokens]
  for (let generated = 0; generated < answerTokensMax; generated++) {
    const blocks = Math.ceil(all.length / blockSizeTokens)
    const pool = new BlockPool({ blocks, blockSizeTokens }, { blockStored() {}, blockRemoved() {} })
    const chain = Array.from({ length: blocks }, (_, index) => index)
    const tokenDigest = { low: 0, high: 0 }
    for (const token of all) digestToken(tokenDigest, token)
    model.computeKv(pool, chain, Uint32Array.from(all), 0, all.length)
    all.push(
      model.nextToken(pool, {
        tokenDigest,
        length: all.length,
        lastToken: all.at(-1) ?? 0,
        requestSeed,
        chain,
        isFirst: generated === 0,
        tokensLeft: undefined,
      }),
    )
  }
  return all.slice(promptTokens.length)
}
