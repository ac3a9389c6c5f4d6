// A snapshot of the index, little-endian; the same bytes as `cpp/core/prefix_snapshot.cc` writes and reads:
//
//   header    magic u64 = "INFPIDX\0", version u32 = 1, reserved u32 = 0, size u64 (all bytes), checksum u64
//   counts    targets u32, tiers u32 = 4, extras u64, blocks u64 of each tier
//   targets   number u32, flags u32 (1: prefix-monotone), holes u64
//   blocks    tier by tier: hash u64, holders u16 >= 1, target number u16 each, in any order
//   extras    hash u64, target u16, tier u16, reserved u32 = 0, further references u64 >= 1
//
// The checksum is XXH3_64 of all bytes after it. Nothing is handed out before all of it was walked once and every number
// found in its range.
import { xxh3 } from '@node-rs/xxhash'
import { NativeBoundError, SnapshotError } from '../errors.js'

const magic = 0x0058_4449_5046_4e49n
const version = 1
const checksumAt = 24
const headerBytes = 32
const tierCount = 4
const countsBytes = 16 + 8 * tierCount
const targetBytes = 16
const extraBytes = 24
const blockBytesMin = 12
const targetNumbers = 32_768
const extraCountMax = 2n ** 40n - 1n

export interface SnapshotTarget {
  readonly target: number
  readonly isPrefixMonotone: boolean
  /** Parents that it lacks of blocks that it holds. */
  readonly holes: bigint
}

/** What a snapshot says, call by call, so that no object is made for a block. */
export interface SnapshotVisitor {
  target(target: SnapshotTarget): void
  /** @param targets of these the first `count` hold the block */
  block(tier: number, hash: bigint, targets: Uint16Array, count: number): void
  extra(tier: number, hash: bigint, target: number, count: number): void
}

/** @param visitAll tells everything, targets first, then blocks by tier, then extras; called twice */
export function writeSnapshot(visitAll: (visitor: SnapshotVisitor) => void): Uint8Array {
  const counts = { targets: 0, extras: 0, blocks: new Array<number>(tierCount).fill(0) }
  let sizeBytes = headerBytes + countsBytes
  visitAll({
    target: () => {
      counts.targets++
      sizeBytes += targetBytes
    },
    block: (tier, _hash, _targets, count) => {
      counts.blocks[tier]!++
      sizeBytes += 10 + 2 * count
    },
    extra: () => {
      counts.extras++
      sizeBytes += extraBytes
    },
  })

  const bytes = new Uint8Array(sizeBytes)
  const view = new DataView(bytes.buffer)
  let at = 0
  const put16 = (value: number) => {
    view.setUint16(at, value, true)
    at += 2
  }
  const put32 = (value: number) => {
    view.setUint32(at, value, true)
    at += 4
  }
  const put64 = (value: bigint) => {
    view.setBigUint64(at, value, true)
    at += 8
  }
  put64(magic)
  put32(version)
  put32(0)
  put64(BigInt(sizeBytes))
  put64(0n)
  put32(counts.targets)
  put32(tierCount)
  put64(BigInt(counts.extras))
  for (const count of counts.blocks) put64(BigInt(count))
  visitAll({
    target: ({ target, isPrefixMonotone, holes }) => {
      put32(target)
      put32(isPrefixMonotone ? 1 : 0)
      put64(holes)
    },
    block: (_tier, hash, targets, count) => {
      put64(hash)
      put16(count)
      for (let place = 0; place < count; place++) put16(targets[place]!)
    },
    extra: (tier, hash, target, count) => {
      put64(hash)
      put16(target)
      put16(tier)
      put32(0)
      put64(BigInt(count))
    },
  })
  view.setBigUint64(checksumAt, xxh3.xxh64(bytes.subarray(headerBytes), 0n), true)
  return bytes
}

export interface SnapshotBounds {
  readonly pairsMax: number
  readonly targetsMax: number
}

/**
 * Checks all of a snapshot, then tells it in the order of `writeSnapshot`.
 * @throws SnapshotError, NativeBoundError; nothing was told then
 */
export function readSnapshot(bytes: Uint8Array, bounds: SnapshotBounds, visitor: SnapshotVisitor): void {
  const source = checkHeader(bytes)
  const afterHeader = source.at
  const pairCount = walk(source, bounds, { target: () => {}, block: () => {}, extra: () => {} })
  if (pairCount > bounds.pairsMax)
    throw new NativeBoundError(
      `a snapshot of ${pairCount} pairs does not fit an index of ${bounds.pairsMax}: raise pairsMax`,
    )
  source.at = afterHeader
  walk(source, bounds, visitor)
}

/** What is wrong with a snapshot's bytes, as the error that says so. */
export function badSnapshot(reason: string): SnapshotError {
  return new SnapshotError('INFERA_NATIVE_BAD_SNAPSHOT', `not a snapshot that can be restored: ${reason}`)
}

class Source {
  readonly #view: DataView
  at = 0

  constructor(bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  get left(): number {
    return this.#view.byteLength - this.at
  }

  u16(): number {
    this.at += 2
    return this.#view.getUint16(this.at - 2, true)
  }

  u32(): number {
    this.at += 4
    return this.#view.getUint32(this.at - 4, true)
  }

  u64(): bigint {
    this.at += 8
    return this.#view.getBigUint64(this.at - 8, true)
  }
}

function checkHeader(bytes: Uint8Array): Source {
  if (bytes.length < headerBytes + countsBytes) throw badSnapshot(`${bytes.length} bytes are too few`)
  const source = new Source(bytes)
  if (source.u64() !== magic) throw badSnapshot('its first bytes are those of something else')
  const found = source.u32()
  if (found !== version) throw badSnapshot(`its layout is ${found}, and this build reads ${version}`)
  if (source.u32() !== 0) throw badSnapshot('its reserved bytes are not 0')
  if (source.u64() !== BigInt(bytes.length)) throw badSnapshot('it was cut off or added to')
  if (source.u64() !== xxh3.xxh64(bytes.subarray(headerBytes), 0n)) throw badSnapshot('its checksum differs')
  return source
}

/** Tells what follows the header while checking it. @returns how many pairs there were */
function walk(source: Source, { targetsMax }: SnapshotBounds, visitor: SnapshotVisitor): number {
  const targetCount = source.u32()
  if (source.u32() !== tierCount) throw badSnapshot('its number of tiers is another')
  const extraCount = source.u64()
  const blockCounts = Array.from({ length: tierCount }, () => source.u64())
  if (targetCount > targetsMax)
    throw new NativeBoundError(
      `a snapshot of ${targetCount} targets does not fit an index of ${targetsMax}: raise targetsMax`,
    )
  if (source.left < targetCount * targetBytes) throw badSnapshot('its targets end early')
  const known = new Uint8Array(targetNumbers)
  for (let rest = targetCount; rest > 0; rest--) {
    const target = source.u32()
    const flags = source.u32()
    const holes = source.u64()
    if (target >= targetNumbers || known[target] === 1) throw badSnapshot(`target ${target} cannot be`)
    if (flags > 1) throw badSnapshot(`flags ${flags} are not known`)
    known[target] = 1
    visitor.target({ target, isPrefixMonotone: flags === 1, holes })
  }
  const pairCount = walkBlocks(source, blockCounts, known, visitor)
  if (BigInt(source.left) !== extraCount * BigInt(extraBytes))
    throw badSnapshot('its extras are fewer or more')
  while (source.left > 0) {
    const hash = source.u64()
    const target = source.u16()
    const tier = source.u16()
    const reserved = source.u32()
    const count = source.u64()
    if (known[target] !== 1 || tier >= tierCount || reserved !== 0)
      throw badSnapshot('an extra belongs nowhere')
    if (count === 0n || count > extraCountMax) throw badSnapshot(`an extra of ${count} references`)
    visitor.extra(tier, hash, target, Number(count))
  }
  return pairCount
}

function walkBlocks(
  source: Source,
  blockCounts: readonly bigint[],
  known: Uint8Array,
  visitor: SnapshotVisitor,
): number {
  const targets = new Uint16Array(0xffff)
  let pairCount = 0
  for (const [tier, blockCount] of blockCounts.entries()) {
    if (blockCount > BigInt(Math.floor(source.left / blockBytesMin)))
      throw badSnapshot('its blocks end early')
    for (let rest = Number(blockCount); rest > 0; rest--) {
      if (source.left < 10) throw badSnapshot('its blocks end early')
      const hash = source.u64()
      const count = source.u16()
      if (count === 0 || source.left < count * 2) throw badSnapshot('a block without its holders')
      for (let place = 0; place < count; place++) {
        const target = source.u16()
        if (known[target] !== 1) throw badSnapshot(`a block of target ${target}, which is not there`)
        targets[place] = target
      }
      pairCount += count
      visitor.block(tier, hash, targets, count)
    }
  }
  return pairCount
}
