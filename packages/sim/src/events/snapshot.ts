import type { BlockPool } from '../cache/block-pool.js'
import { encodeBatch, type StoredEvent, storedEventBytes } from './kv-event-codec.js'

export interface SnapshotOptions {
  readonly payloadBytesMax: number
  readonly atSeconds: number
  readonly rank: number
}

/**
 * The whole prefix cache as batches of stored events, every block after its parent. A payload is cut before it would pass
 * `payloadBytesMax`, but holds at least one block.
 */
export function encodeSnapshot(pool: BlockPool, options: SnapshotOptions): Uint8Array[] {
  const { blockSizeTokens } = pool
  const payloads: Uint8Array[] = []
  let events: StoredEvent[] = []
  let sizeBytes = 0
  const cut = () => {
    if (events.length > 0) payloads.push(encodeBatch(events, { ...options, blockSizeTokens }))
    events = []
    sizeBytes = 0
  }
  const blockBytes = storedEventBytes(1, blockSizeTokens) - storedEventBytes(0, blockSizeTokens)
  for (const block of parentsFirst(pool)) {
    const parent = pool.parentOf(block)
    const isContinued = parent !== undefined && events.at(-1)?.hashes.at(-1) === parent
    const addedBytes = blockBytes + (isContinued ? 0 : storedEventBytes(0, blockSizeTokens))
    if (sizeBytes + addedBytes > options.payloadBytesMax) cut()
    sizeBytes += sizeBytes === 0 ? storedEventBytes(1, blockSizeTokens) : addedBytes
    const last = isContinued ? events.at(-1) : undefined
    if (last) {
      last.hashes.push(pool.hashOf(block))
      for (const token of pool.tokensOf(block)) last.tokens.push(token)
    } else {
      const tokens = Array.from(pool.tokensOf(block))
      events.push({ type: 'stored', hashes: [pool.hashOf(block)], parent, tokens })
    }
  }
  cut()
  return payloads
}

/** Cached blocks, each after its parent. */
function parentsFirst(pool: BlockPool): number[] {
  const order: number[] = []
  const isListed = new Uint8Array(pool.capacityBlocks)
  const path: number[] = []
  pool.forEachCached((start) => {
    let block: number | undefined = start
    while (block !== undefined && isListed[block] === 0) {
      isListed[block] = 1
      path.push(block)
      const parent: bigint | undefined = pool.parentOf(block)
      block = parent === undefined ? undefined : pool.find(parent)
    }
    for (let next = path.pop(); next !== undefined; next = path.pop()) order.push(next)
  })
  return order
}
