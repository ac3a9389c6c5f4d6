import { endianness } from 'node:os'

const isLittleEndian = endianness() === 'LE'

/** Where in a pair of u32 words the low half of a u64 of this host stands; the other is the high half. */
export const lowWord = isLittleEndian ? 0 : 1
export const highWord = isLittleEndian ? 1 : 0

/** The same bytes as pairs of u32 words: word `2 * i + lowWord` is the low half of hash `i`. Shares the buffer. */
export function wordsOf(hashes: BigUint64Array): Uint32Array {
  return new Uint32Array(hashes.buffer, hashes.byteOffset, hashes.length * 2)
}

export function lowOf(hash: bigint): number {
  return Number(hash & 0xffff_ffffn)
}

export function highOf(hash: bigint): number {
  return Number(hash >> 32n)
}

export function hashOf(low: number, high: number): bigint {
  return (BigInt(high) << 32n) | BigInt(low)
}
