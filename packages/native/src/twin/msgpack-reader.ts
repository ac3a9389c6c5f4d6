// Reads msgpack (the format's spec, 2.0) where it lies, without building values: KV events carry thousands of integers,
// and a decoder that makes arrays of them also makes what a hostile length asks for. Here a container claims no more than
// the bytes that are there, each at least one element, and nesting is bounded.

const depthMax = 64

/** Bytes that are not msgpack, or not the kind of value that was asked for. */
export class MsgpackError extends Error {
  override readonly name = 'MsgpackError'
}

export type MsgpackKind =
  | 'nil'
  | 'boolean'
  | 'integer'
  | 'float'
  | 'string'
  | 'binary'
  | 'array'
  | 'map'
  | 'extension'

export class MsgpackReader {
  readonly #bytes: Uint8Array
  readonly #view: DataView
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  /** Position of the next value, in bytes. */
  get at(): number {
    return this.#at
  }

  set at(position: number) {
    this.#at = position
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length
  }

  /** What the next value is; stays in front of it. */
  peek(): MsgpackKind {
    const tag = this.#tagHere()
    if (tag < 0x80 || tag >= 0xe0) return 'integer'
    if (tag < 0x90) return 'map'
    if (tag < 0xa0) return 'array'
    if (tag < 0xc0) return 'string'
    return kinds[tag - 0xc0] ?? fail(`tag 0x${tag.toString(16)} is not used`)
  }

  /** @returns the number of elements, which follow */
  arrayLength(): number {
    const tag = this.#tag()
    if (tag >= 0x90 && tag < 0xa0) return this.#fits(tag & 0x0f, 1)
    if (tag === 0xdc) return this.#fits(this.#unsigned(2), 1)
    if (tag === 0xdd) return this.#fits(this.#unsigned(4), 1)
    return fail('not an array')
  }

  /** @returns the number of pairs; key, value, key, ... follow */
  mapLength(): number {
    const tag = this.#tag()
    if (tag >= 0x80 && tag < 0x90) return this.#fits(tag & 0x0f, 2)
    if (tag === 0xde) return this.#fits(this.#unsigned(2), 2)
    if (tag === 0xdf) return this.#fits(this.#unsigned(4), 2)
    return fail('not a map')
  }

  string(): string {
    return this.#text(this.#stringLength())
  }

  /** @returns a view of the string's bytes, not a copy */
  stringBytes(): Uint8Array {
    return this.#take(this.#stringLength())
  }

  /** A view of the bytes from a position that was passed to the next value. */
  since(position: number): Uint8Array {
    return this.#bytes.subarray(position, this.#at)
  }

  /** A string of at most `bytesMax` bytes; a longer one reads as empty. */
  shortString(bytesMax: number): string {
    const length = this.#stringLength()
    if (length <= bytesMax) return this.#text(length)
    this.#skipBytes(length)
    return ''
  }

  /** @returns a view of the bytes, not a copy */
  binary(): Uint8Array {
    const tag = this.#tag()
    if (tag >= 0xc4 && tag <= 0xc6) return this.#take(this.#unsigned(1 << (tag - 0xc4)))
    return fail('not binary')
  }

  /** An integer of any width as a u64: negative ones as their two's complement. */
  integerAsU64(): bigint {
    const tag = this.#tagHere()
    if (tag === 0xcf || tag === 0xd3) {
      const start = this.#skipBytes(9) + 1
      return this.#view.getBigUint64(start)
    }
    return BigInt.asUintN(64, BigInt(this.smallInteger()))
  }

  /** An integer that a JavaScript number holds exactly. */
  smallInteger(): number {
    const tag = this.#tag()
    if (tag < 0x80) return tag
    if (tag >= 0xe0) return tag - 0x100
    if (tag >= 0xcc && tag <= 0xce) return this.#unsigned(1 << (tag - 0xcc))
    if (tag === 0xd0) return this.#view.getInt8(this.#skipBytes(1))
    if (tag === 0xd1) return this.#view.getInt16(this.#skipBytes(2))
    if (tag === 0xd2) return this.#view.getInt32(this.#skipBytes(4))
    if (tag === 0xcf || tag === 0xd3) {
      const start = this.#skipBytes(8)
      const value = Number(tag === 0xcf ? this.#view.getBigUint64(start) : this.#view.getBigInt64(start))
      return Number.isSafeInteger(value) ? value : fail('integer is too large')
    }
    return fail('not an integer')
  }

  /** Passes over the next value, whatever it is. */
  skip(depth = 0): void {
    if (depth > depthMax) fail(`nested deeper than ${depthMax}`)
    switch (this.peek()) {
      case 'array':
        for (let rest = this.arrayLength(); rest > 0; rest--) this.skip(depth + 1)
        return
      case 'map':
        for (let rest = this.mapLength() * 2; rest > 0; rest--) this.skip(depth + 1)
        return
      case 'string':
      case 'binary':
        this.#skipSized()
        return
      case 'extension':
        this.#skipExtension()
        return
      default:
        this.#skipBytes(1 + scalarBytes(this.#tagHere()))
    }
  }

  #skipSized(): void {
    const tag = this.#tag()
    if (tag < 0xc0) this.#skipBytes(tag & 0x1f)
    else this.#skipBytes(this.#unsigned(1 << (tag - (tag >= 0xd9 ? 0xd9 : 0xc4))))
  }

  #skipExtension(): void {
    const tag = this.#tag()
    // Fixed ones have 1, 2, 4, 8 or 16 bytes after the type byte; the others state their length before it.
    const length = tag >= 0xd4 ? 1 << (tag - 0xd4) : this.#unsigned(1 << (tag - 0xc7))
    this.#skipBytes(1 + length)
  }

  /** Bytes of the string that follows. */
  #stringLength(): number {
    const tag = this.#tag()
    if (tag >= 0xa0 && tag < 0xc0) return tag & 0x1f
    if (tag >= 0xd9 && tag <= 0xdb) return this.#unsigned(1 << (tag - 0xd9))
    return fail('not a string')
  }

  #text(length: number): string {
    const bytes = this.#take(length)
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8')
  }

  #take(length: number): Uint8Array {
    const start = this.#skipBytes(length)
    return this.#bytes.subarray(start, start + length)
  }

  #fits(count: number, bytesEach: number): number {
    if (count * bytesEach > this.#bytes.length - this.#at)
      fail('container is longer than the bytes that are left')
    return count
  }

  #unsigned(bytes: number): number {
    const start = this.#skipBytes(bytes)
    if (bytes === 1) return this.#view.getUint8(start)
    return bytes === 2 ? this.#view.getUint16(start) : this.#view.getUint32(start)
  }

  #tag(): number {
    return this.#bytes[this.#skipBytes(1)] as number
  }

  #tagHere(): number {
    return this.#bytes[this.#at] ?? fail('bytes end early')
  }

  #skipBytes(count: number): number {
    const start = this.#at
    if (start + count > this.#bytes.length) fail('bytes end early')
    this.#at = start + count
    return start
  }
}

/** Kinds of the tags 0xc0 to 0xdf; 0xc1 is never used. */
const kinds: readonly (MsgpackKind | undefined)[] = [
  ...(['nil', undefined, 'boolean', 'boolean', 'binary', 'binary', 'binary'] as const),
  ...(['extension', 'extension', 'extension', 'float', 'float'] as const),
  ...(['integer', 'integer', 'integer', 'integer', 'integer', 'integer', 'integer', 'integer'] as const),
  ...(['extension', 'extension', 'extension', 'extension', 'extension'] as const),
  ...(['string', 'string', 'string', 'array', 'array', 'map', 'map'] as const),
]

/** Bytes that follow the tag of a nil, boolean, integer or float. */
function scalarBytes(tag: number): number {
  if (tag < 0xc0 || tag >= 0xe0 || tag < 0xca) return 0
  if (tag === 0xca) return 4
  if (tag === 0xcb) return 8
  return 1 << ((tag - 0xcc) % 4)
}

function fail(message: string): never {
  throw new MsgpackError(message)
}
