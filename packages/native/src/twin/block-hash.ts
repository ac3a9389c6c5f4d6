// The router chain of block hashes, which router, relays and simulated engines must compute alike:
//
//   h[-1] = parent (0 for a prompt's start)
//   h[i]  = XXH3_64( LE64(h[i-1]) || LE32(token) * blockSizeTokens )    seed 0, default secret
//
// The parent is the first 8 bytes of the hashed buffer, not an XXH3 seed. Nothing but token ids enters the hash.
import { xxh3 } from '@node-rs/xxhash'

const parentBytes = 8
const tokenBytes = 4

/**
 * Chained hashes of a prompt's full KV blocks; a trailing partial block is dropped.
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
  const blockCount = blockSizeTokens > 0 ? Math.floor(tokens.length / blockSizeTokens) : 0
  const hashes = new BigUint64Array(blockCount)
  if (blockCount === 0) return hashes

  // One scratch block for the whole prompt. DataView writes little-endian on every host, and costs no garbage.
  const scratch = new Uint8Array(parentBytes + tokenBytes * blockSizeTokens)
  const view = new DataView(scratch.buffer)
  let previous = parent
  for (let block = 0; block < blockCount; block++) {
    view.setBigUint64(0, previous, true)
    const first = block * blockSizeTokens
    for (let index = 0; index < blockSizeTokens; index++)
      view.setUint32(parentBytes + tokenBytes * index, tokens[first + index] ?? 0, true)
    previous = xxh3.xxh64(scratch, 0n)
    hashes[block] = previous
  }
  return hashes
}
