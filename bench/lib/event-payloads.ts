import type { Random } from '@infera/fleet'
import { encode } from '@msgpack/msgpack'

/**
 * Event batches as vLLM sends them: prompts of 64 blocks, stored `blocksPerEvent` at a time.
 * @returns one batch of one event each
 */
export function eventPayloads(options: {
  blocks: number
  blocksPerEvent: number
  blockSizeTokens: number
  random: Random
}): Uint8Array[] {
  const { blocks, blocksPerEvent, blockSizeTokens, random } = options
  const hash = () => BigInt(Math.floor(random() * 2 ** 52)) + 1n
  const payloads: Uint8Array[] = []
  let parent: bigint | null = null
  for (let stored = 0; stored < blocks; stored += blocksPerEvent) {
    if (stored % 64 === 0) parent = null
    const block_hashes = Array.from({ length: blocksPerEvent }, hash)
    const event = {
      type: 'BlockStored',
      block_hashes,
      parent_block_hash: parent,
      token_ids: Array.from({ length: blocksPerEvent * blockSizeTokens }, () =>
        Math.floor(random() * 150_000),
      ),
      block_size: blockSizeTokens,
      lora_id: null,
      medium: 'GPU',
    }
    payloads.push(encode([0, [event], null], { useBigInt64: true }))
    parent = block_hashes.at(-1) as bigint
  }
  return payloads
}
