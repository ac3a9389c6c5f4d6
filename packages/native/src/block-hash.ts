import { translated } from './errors.js'
import { loadAddon } from './load-addon.js'
import { chainBlockHashes as twinChainBlockHashes } from './twin/block-hash.js'

/**
 * Chained hashes of a prompt's full KV blocks (XXH3-64 over parent hash and token ids); a trailing partial block is dropped.
 * @param tokens token ids; a typed array, so each is in [0, 2^32)
 * @param blockSizeTokens tokens per KV block; <= 0 gives no hashes
 * @param parent hash of the block before these tokens; 0n at the start of a prompt
 * @returns `floor(tokens.length / blockSizeTokens)` hashes, owned by the caller
 */
export function chainBlockHashes(
  tokens: Uint32Array,
  blockSizeTokens: number,
  parent: bigint = 0n,
): BigUint64Array {
  const { addon } = loadAddon()
  if (addon === undefined) return twinChainBlockHashes(tokens, blockSizeTokens, parent)
  const hashes = new BigUint64Array(blockCount(tokens, blockSizeTokens))
  if (hashes.length === 0) return hashes
  try {
    addon.chainHashes(tokens, blockSizeTokens, parent, hashes)
  } catch (error) {
    throw translated(error)
  }
  return hashes
}

/** Full blocks in these tokens. */
export function blockCount(tokens: Uint32Array, blockSizeTokens: number): number {
  return blockSizeTokens > 0 ? Math.floor(tokens.length / blockSizeTokens) : 0
}
