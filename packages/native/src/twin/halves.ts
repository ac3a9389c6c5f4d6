/** The same memory as 32-bit halves, two for each hash, in the host's order. */
export function halvesOf(hashes: BigUint64Array): Int32Array {
  return new Int32Array(hashes.buffer, hashes.byteOffset, hashes.length * 2)
}
