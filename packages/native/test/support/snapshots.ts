import { xxh3 } from '@node-rs/xxhash'

const checksumAt = 24
const headerBytes = 32

/** Makes a snapshot's checksum and size right again after its bytes were changed. */
export function seal(snapshot: Uint8Array): void {
  const view = new DataView(snapshot.buffer, snapshot.byteOffset, snapshot.byteLength)
  view.setBigUint64(16, BigInt(snapshot.length), true)
  view.setBigUint64(checksumAt, xxh3.xxh64(snapshot.subarray(headerBytes), 0n), true)
}

/** What a sound snapshot says of targets, blocks and references, in an order that no table decides. */
export function sortedBlocks(snapshot: Uint8Array): unknown {
  const view = new DataView(snapshot.buffer, snapshot.byteOffset, snapshot.byteLength)
  const targetCount = view.getUint32(32, true)
  const extraCount = Number(view.getBigUint64(40, true))
  const blockCounts = [0, 1, 2, 3].map((tier) => Number(view.getBigUint64(48 + 8 * tier, true)))
  let at = 80
  const targets: number[] = []
  for (let rest = targetCount; rest > 0; rest--, at += 16) targets.push(view.getUint32(at, true))
  const blocks = blockCounts.map((count) => {
    const lines: string[] = []
    for (let rest = count; rest > 0; rest--) {
      const holders = view.getUint16(at + 8, true)
      const numbers = Array.from({ length: holders }, (_, place) => view.getUint16(at + 10 + 2 * place, true))
      lines.push(`${view.getBigUint64(at, true)}: ${numbers.sort((a, b) => a - b)}`)
      at += 10 + 2 * holders
    }
    return lines.sort()
  })
  const extras: string[] = []
  for (let rest = extraCount; rest > 0; rest--, at += 24) {
    const [target, tier] = [view.getUint16(at + 8, true), view.getUint16(at + 10, true)]
    extras.push(`${view.getBigUint64(at, true)}/${target}/${tier}: ${view.getBigUint64(at + 16, true)}`)
  }
  return { targets, blocks, extras: extras.sort(), left: snapshot.length - at }
}
