import type { FrozenBlocks } from '../cache/block-pool.js'
import { encodeBatch, type StoredEvent, storedEventBytes } from './kv-event-codec.js'

export interface SnapshotOptions {
  readonly payloadBytesMax: number
  readonly atSeconds: number
  readonly rank: number
}

/**
 * A prefix cache, as it was when it was frozen, as batches of stored events, every block after its parent. Each payload is encoded
 * when it is asked for. It is cut before it would pass `payloadBytesMax`, but holds at least one block.
 */
export function* snapshotPayloads(
  blocks: FrozenBlocks,
  options: SnapshotOptions,
): Generator<Uint8Array, void, void> {
  const { blockSizeTokens } = blocks
  let events: StoredEvent[] = []
  let sizeBytes = 0
  const blockBytes = storedEventBytes(1, blockSizeTokens) - storedEventBytes(0, blockSizeTokens)
  for (const block of blocks.parentsFirst) {
    const parent = blocks.parentOf(block)
    const isContinued = parent !== undefined && events.at(-1)?.hashes.at(-1) === parent
    const addedBytes = blockBytes + (isContinued ? 0 : storedEventBytes(0, blockSizeTokens))
    if (sizeBytes + addedBytes > options.payloadBytesMax && events.length > 0) {
      yield encodeBatch(events, { ...options, blockSizeTokens })
      events = []
      sizeBytes = 0
    }
    sizeBytes += sizeBytes === 0 ? storedEventBytes(1, blockSizeTokens) : addedBytes
    const last = isContinued ? events.at(-1) : undefined
    if (last) {
      last.hashes.push(blocks.hashOf(block))
      for (const token of blocks.tokensOf(block)) last.tokens.push(token)
    } else {
      const tokens = Array.from(blocks.tokensOf(block))
      events.push({ type: 'stored', hashes: [blocks.hashOf(block)], parent, tokens })
    }
  }
  if (events.length > 0) yield encodeBatch(events, { ...options, blockSizeTokens })
}
