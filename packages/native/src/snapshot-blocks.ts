import type { Tier } from './ports.js'
import { readSnapshot } from './twin/prefix-snapshot.js'

const noBounds = { pairsMax: Number.MAX_SAFE_INTEGER, targetsMax: 32_768 }

/**
 * The blocks that a target holds in a tier, from a snapshot of its index.
 * @returns block hashes, ascending
 * @throws SnapshotError where it is none
 */
export function blocksInSnapshot(snapshot: Uint8Array, target: number, tier: Tier): BigUint64Array {
  const found: bigint[] = []
  readSnapshot(snapshot, noBounds, {
    target: () => {},
    extra: () => {},
    block: (blockTier, hash, targets, count) => {
      if (blockTier !== tier) return
      for (let place = 0; place < count; place++) if (targets[place] === target) found.push(hash)
    },
  })
  return BigUint64Array.from(found).sort()
}
