import type { BlockPool } from '../cache/block-pool.js'
import { computeKv, type Digest, digestKv, headState, scramble } from './kv-content.js'
import type { OutputVocabulary } from './output-vocabulary.js'

/** What a next token is computed from. */
export interface TokenContext {
  /** Digest of all tokens so far. */
  readonly tokenDigest: Digest
  /** Number of all tokens so far. */
  readonly length: number
  /** The last of them. */
  readonly lastToken: number
  /** The request's own `seed`; 0 without one. */
  readonly requestSeed: number
  /** Blocks that hold the KV of all tokens so far, in order. */
  readonly chain: readonly number[]
  /** Whether this token begins the answer. */
  readonly isFirst: boolean
  /** Tokens of the answer after this one; undefined: it does not end by itself. */
  readonly tokensLeft: number | undefined
}

/** One word in so many is followed by a comma, and one by a full stop. */
const punctuationPeriod = 16

/**
 * The simulated weights. Equal seeds give equal functions. The next token depends on every token so far and on every byte
 * of the KV blocks, which are read from the arena each time: what a cache, a transfer or a scheduler does wrong shows in the text.
 */
export class LanguageModel {
  readonly #vocabulary: OutputVocabulary
  readonly #seed: number
  readonly #head: Int32Array

  constructor(vocabulary: OutputVocabulary, seed: number) {
    this.#vocabulary = vocabulary
    // Both halves of a 53-bit seed count.
    this.#seed = scramble((seed | 0) ^ Math.imul(Math.floor(seed / 0x1_0000_0000) | 0, 0x9e3779b1 | 0))
    this.#head = headState(this.#seed)
  }

  /** Writes the KV of tokens `from` .. `to` - 1 into the blocks of `chain`. */
  computeKv(pool: BlockPool, chain: readonly number[], tokens: Uint32Array, from: number, to: number): void {
    computeKv(pool, this.#head, chain, tokens, from, to)
  }

  nextToken(pool: BlockPool, context: TokenContext): number {
    const digest = {
      low: context.tokenDigest.low ^ this.#seed,
      high: context.tokenDigest.high ^ context.requestSeed,
    }
    digestKv(pool, context.chain, digest)
    const low = scramble(digest.low ^ context.length)
    const high = scramble(digest.high ^ low)
    return this.#choose(context, low >>> 0, high >>> 0)
  }

  #choose(context: TokenContext, low: number, high: number): number {
    const { openings, sentenceOpenings, words, comma, fullStop } = this.#vocabulary
    if (context.isFirst) return at(openings, high)
    if (context.tokensLeft === 0 && fullStop !== undefined) return fullStop
    if (context.lastToken === fullStop) return at(sentenceOpenings, high)
    // A mark neither follows a mark nor stands before the full stop that ends the answer.
    if (context.lastToken === comma || context.tokensLeft === 1) return at(words, high)
    const mark = low % punctuationPeriod
    if (mark === 0 && comma !== undefined) return comma
    if (mark === 1 && fullStop !== undefined) return fullStop
    return at(words, high)
  }

  /** Length of an answer that ends by itself, tokens; from the prompt and the seeds alone. */
  answerTokens(promptDigest: Digest, requestSeed: number, range: { min: number; max: number }): number {
    const mixed = scramble(promptDigest.low ^ scramble(promptDigest.high ^ requestSeed) ^ this.#seed) >>> 0
    return range.min + (mixed % (range.max - range.min + 1))
  }
}

function at(tokens: Uint32Array, number: number): number {
  return tokens[number % tokens.length]!
}
