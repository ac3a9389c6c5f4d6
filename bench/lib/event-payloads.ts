import type { Random } from '@infera/fleet'
import { encode } from '@msgpack/msgpack'

/**
 * Event batches as vLLM sends them: prompts of 64 blocks, stored `blocksPerEvent` at a time.
 * @returns batches of one event each, and for each prompt the batch that removes it
 */
export function eventPayloads(options: {
  blocks: number
  blocksPerEvent: number
  blockSizeTokens: number
  random: Random
}): { readonly stores: readonly Uint8Array[]; readonly removals: readonly Uint8Array[] } {
  const { blocks, blocksPerEvent, blockSizeTokens, random } = options
  const half = () => BigInt(Math.floor(random() * 2 ** 32))
  const hash = () => (half() << 32n) | half()
  const stores: Uint8Array[] = []
  const removals: Uint8Array[] = []
  let prompt: bigint[] = []
  for (let stored = 0; stored < blocks; stored += blocksPerEvent) {
    const block_hashes = Array.from({ length: blocksPerEvent }, hash)
    const event = {
      type: 'BlockStored',
      block_hashes,
      parent_block_hash: prompt.at(-1) ?? null,
      token_ids: Array.from({ length: blocksPerEvent * blockSizeTokens }, () =>
        Math.floor(random() * 150_000),
      ),
      block_size: blockSizeTokens,
      lora_id: null,
      medium: 'GPU',
    }
    stores.push(encode([0, [event], null], { useBigInt64: true }))
    prompt.push(...block_hashes)
    if (prompt.length < 64) continue
    removals.push(encode([0, [{ type: 'BlockRemoved', block_hashes: prompt }]], { useBigInt64: true }))
    prompt = []
  }
  return { stores, removals }
}
