import { type BlockPool, blockWords } from '../cache/block-pool.js'

/*
 * What a KV block holds: a running 128-bit state. It starts from the bytes of the block before it (from the model's seed at
 * the head), and takes in one token after the other. So the bytes of a block depend on everything before it, through the
 * arena and not through any memory of ours, and do not depend on how the prompt was cut into chunks.
 * Every step is invertible in the state: no two different states ever become equal by taking in the same token.
 */

/** The state before the first block, from the model's seed. */
export function headState(seed: number): Int32Array {
  const state = new Int32Array(blockWords)
  let mixed = seed | 0
  for (let word = 0; word < blockWords; word++) {
    mixed = scramble((mixed + 0x6d2b79f5) | 0)
    state[word] = mixed
  }
  return state
}

/**
 * Computes the KV of tokens `from` .. `to` - 1 of a sequence into its blocks.
 * @param chain the sequence's blocks in order; they cover `to` tokens
 */
export function computeKv(
  pool: BlockPool,
  head: Int32Array,
  chain: readonly number[],
  tokens: Uint32Array,
  from: number,
  to: number,
): void {
  const { words, blockSizeTokens } = pool
  for (let position = from; position < to; position++) {
    const index = Math.floor(position / blockSizeTokens)
    const base = chain[index]! * blockWords
    if (position % blockSizeTokens === 0) {
      if (index === 0) words.set(head, base)
      else words.copyWithin(base, chain[index - 1]! * blockWords, (chain[index - 1]! + 1) * blockWords)
    }
    takeIn(words, base, tokens[position]!)
  }
}

function takeIn(words: Int32Array, base: number, token: number): void {
  const a = Math.imul(words[base]! ^ token, 0x9e3779b1 | 0)
  const b = rotate((words[base + 1]! + a) | 0, 11)
  const c = Math.imul(words[base + 2]! ^ b, 0x85ebca6b | 0)
  const d = rotate((words[base + 3]! + c) | 0, 17)
  words[base] = a ^ d
  words[base + 1] = b
  words[base + 2] = c
  words[base + 3] = d
}

/** Two 32-bit lanes over everything a next token depends on. */
export interface Digest {
  low: number
  high: number
}

/**
 * Reads every byte of a chain's blocks from the arena, in order, into `digest`. Each lane is invertible in itself, so one
 * changed byte always changes the lane that took it in.
 */
export function digestKv(pool: BlockPool, chain: readonly number[], digest: Digest): void {
  const { words } = pool
  let { low, high } = digest
  for (const block of chain) {
    const base = block * blockWords
    low = Math.imul(rotate(low, 5) ^ words[base]!, 0xcc9e2d51 | 0)
    high = Math.imul(rotate(high, 7) ^ words[base + 1]!, 0x1b873593)
    low = Math.imul(rotate(low, 13) ^ words[base + 2]!, 0xc2b2ae35 | 0)
    high = Math.imul(rotate(high, 15) ^ words[base + 3]!, 0x27d4eb2f)
  }
  digest.low = low
  digest.high = high
}

/** Takes one token into a digest of the tokens alone. */
export function digestToken(digest: Digest, token: number): void {
  digest.low = Math.imul(rotate(digest.low, 5) ^ token, 0x9e3779b1 | 0)
  digest.high = Math.imul((rotate(digest.high, 9) + token) | 0, 0x85ebca77 | 0)
}

/** A bijective scramble of 32 bits in which every input bit reaches every output bit. */
export function scramble(value: number): number {
  let mixed = value | 0
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x7feb352d)
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x846ca68b | 0)
  return mixed ^ (mixed >>> 16)
}

function rotate(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits))
}
