import type { KvViewCodec } from '@infera/fleet/nats'
import {
  blocksInSnapshot,
  type CacheView,
  createPrefixIndex,
  newKvEventCounts,
  type PrefixIndex,
  tiers,
} from '@infera/native'

export interface KvViewCodecOptions {
  /** Tokens of a block, as the worker registers it. */
  readonly blockSizeTokens: number
  readonly ranks: readonly number[]
  /** Blocks remembered; further ones are left out of the view. Default 2^20. */
  readonly blocksMax?: number
}

/**
 * What the relay of Infera 0.1 keeps of each rank, and front ends of it start from: the router's block hashes of the blocks on the
 * device, as a msgpack array of u64, ascending.
 */
export function kvViewCodec({
  blockSizeTokens,
  ranks,
  blocksMax = 2 ** 20,
}: KvViewCodecOptions): KvViewCodec {
  // An index for each rank, so that writing one does not walk the others.
  const held = new Map<number, { readonly index: PrefixIndex; readonly view: CacheView }>()
  for (const rank of ranks) {
    const index = createPrefixIndex({ pairsMax: blocksMax, targetsMax: 1, verifyOneIn: 0 })
    const view = index.createView({ blockSizeTokens, engineHashesMax: blocksMax, tiers: [tiers.device] })
    held.set(rank, { index, view })
  }
  const counts = newKvEventCounts()
  return {
    clear: (rank) => held.get(rank)?.view.clear(),
    apply: (rank, payload) => held.get(rank)?.view.apply(payload, counts),
    encode: (rank) => {
      const one = held.get(rank)
      return encodeHashes(
        one ? blocksInSnapshot(one.index.snapshot(), one.view.target, tiers.device) : new BigUint64Array(),
      )
    },
  }
}

const uint8Max = 0xffn
const uint16Max = 0xffffn
const uint32Max = 0xffff_ffffn

/** A msgpack array of whole numbers, each in its shortest form, as Infera 0.1 writes them. */
export function encodeHashes(hashes: BigUint64Array): Uint8Array {
  const bytes = Buffer.allocUnsafe(5 + hashes.length * 9)
  let at = 0
  if (hashes.length < 16) at = bytes.writeUInt8(0x90 | hashes.length, at)
  else if (hashes.length < 65_536) at = bytes.writeUInt16BE(hashes.length, bytes.writeUInt8(0xdc, at))
  else at = bytes.writeUInt32BE(hashes.length, bytes.writeUInt8(0xdd, at))
  for (const hash of hashes) {
    if (hash < 128n) at = bytes.writeUInt8(Number(hash), at)
    else if (hash <= uint8Max) at = bytes.writeUInt8(Number(hash), bytes.writeUInt8(0xcc, at))
    else if (hash <= uint16Max) at = bytes.writeUInt16BE(Number(hash), bytes.writeUInt8(0xcd, at))
    else if (hash <= uint32Max) at = bytes.writeUInt32BE(Number(hash), bytes.writeUInt8(0xce, at))
    else at = bytes.writeBigUInt64BE(hash, bytes.writeUInt8(0xcf, at))
  }
  return new Uint8Array(bytes.subarray(0, at))
}
