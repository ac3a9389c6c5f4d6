/**
 * The value of the bucket for one rank: a msgpack array of whole numbers, the router's block hashes. Negative ones are those of a
 * writer without unsigned numbers, and mean the same 64 bits.
 * @param hashesMax more are no view
 * @returns undefined for anything else
 */
export function decodeKvView(bytes: Uint8Array, hashesMax: number): BigUint64Array | undefined {
  const source = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  try {
    const { count, from } = headOf(source)
    // Each takes a byte at least, so that no claimed length takes memory.
    if (count > hashesMax || count > bytes.byteLength) return undefined
    const hashes = new BigUint64Array(count)
    let at = from
    for (let index = 0; index < count; index++) {
      const tag = source.getUint8(at)
      const size = sizes[tag] ?? (tag < 0x80 || tag >= 0xe0 ? 0 : undefined)
      if (size === undefined) return undefined
      hashes[index] = numberAt(source, at, tag, size)
      at += 1 + size
    }
    return at === bytes.byteLength ? hashes : undefined
  } catch (error) {
    if (error instanceof RangeError) return undefined // it ends too soon
    throw error
  }
}

/** Bytes after the tag of each form of a whole number that is not in its tag. */
const sizes: Readonly<Record<number, number>> = {
  ...{ 204: 1, 205: 2, 206: 4, 207: 8 },
  ...{ 208: 1, 209: 2, 210: 4, 211: 8 },
}

function headOf(source: DataView): { count: number; from: number } {
  const tag = source.getUint8(0)
  if (tag >= 0x90 && tag <= 0x9f) return { count: tag & 0x0f, from: 1 }
  if (tag === 0xdc) return { count: source.getUint16(1), from: 3 }
  if (tag === 0xdd) return { count: source.getUint32(1), from: 5 }
  throw new RangeError('no array')
}

function numberAt(source: DataView, at: number, tag: number, size: number): bigint {
  if (size === 0) return BigInt.asUintN(64, BigInt(source.getInt8(at)))
  let value = 0n
  for (let index = 1; index <= size; index++) value = (value << 8n) | BigInt(source.getUint8(at + index))
  const isSigned = tag >= 0xd0
  return isSigned ? BigInt.asUintN(64, BigInt.asIntN(8 * size, value)) : value
}
