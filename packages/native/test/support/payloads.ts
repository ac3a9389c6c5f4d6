import { encode } from '@msgpack/msgpack'

/** A batch with one event that stores `blockCount` blocks after no parent, named and filled from `first` on. */
export function storedBatch(first: number, blockCount: number, blockSizeTokens: number): Uint8Array {
  const names = Array.from({ length: blockCount }, (_, block) => first + block)
  const tokens = Array.from({ length: blockCount * blockSizeTokens }, (_, at) => (first * 31 + at) >>> 0)
  return encode([1.5, [['BlockStored', names, null, tokens, blockSizeTokens, null]], 0])
}

/** A batch with one event that removes what `storedBatch` stored. */
export function removedBatch(first: number, blockCount: number): Uint8Array {
  const names = Array.from({ length: blockCount }, (_, block) => first + block)
  return encode([1.5, [['BlockRemoved', names, null]], 0])
}

export function tokensOf(first: number, blockCount: number, blockSizeTokens: number): Uint32Array {
  return Uint32Array.from({ length: blockCount * blockSizeTokens }, (_, at) => (first * 31 + at) >>> 0)
}
