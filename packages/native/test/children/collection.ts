// Makes garbage of indexes, views and the buffers they work on while others of them are in use, and collects it again and
// again. Run with --expose-gc.
import { setImmediate as turn } from 'node:timers/promises'
import { chainBlockHashes, createPrefixIndex, newKvEventCounts, openPrefixIndex } from '../../src/index.js'
import type { CacheView } from '../../src/ports.js'
import { storedBatch, tokensOf } from '../support/payloads.js'

const collect = globalThis.gc!
const blockSizeTokens = 4
const blockCount = 256

/** Nothing but the result is reachable afterwards. */
function viewWithoutIndex(): { view: CacheView; handle: string } {
  const index = createPrefixIndex()
  return { view: index.createView({ blockSizeTokens }), handle: index.handle }
}

async function collectAll(): Promise<void> {
  // Wraps are freed in a task after the collection.
  for (let round = 0; round < 3; round++) {
    collect()
    await turn()
  }
}

const kept = viewWithoutIndex()
for (let round = 0; round < 20; round++) {
  const { view } = viewWithoutIndex()
  // The payload and the arrays are garbage as soon as the calls return, and nothing may point into them then.
  view.apply(storedBatch(round, blockCount, blockSizeTokens), newKvEventCounts())
  kept.view.apply(storedBatch(1, blockCount, blockSizeTokens), newKvEventCounts())
  await collectAll()
}

// A view keeps its index, so the handle still opens it; the blocks are those that were stored from buffers now gone.
const index = openPrefixIndex(kept.handle)
const overlaps = new Uint32Array(index.targetCount)
const hashes = index.matchTokens(tokensOf(1, blockCount, blockSizeTokens), blockSizeTokens, overlaps, {
  nowMs: 0,
})
await collectAll()
const expected = chainBlockHashes(tokensOf(1, blockCount, blockSizeTokens), blockSizeTokens)
if (!hashes.every((hash, at) => hash === expected[at])) throw new Error('the hashes changed under collection')

/** The handle of an index that nothing holds once this returned. */
function forgotten(): string {
  const index = createPrefixIndex()
  const view = index.createView({ blockSizeTokens })
  view.apply(storedBatch(7, blockCount, blockSizeTokens), newKvEventCounts())
  return index.handle
}

function isOpen(handle: string): boolean {
  try {
    openPrefixIndex(handle)
    return true
  } catch {
    return false // the only error it has is that nobody holds the index
  }
}

const handle = forgotten()
await collectAll()

/** What the collector is told of big indexes comes and goes with them. */
function bigIndex(): void {
  const index = createPrefixIndex()
  const target = index.addTarget()
  index.retain(
    target,
    0,
    new BigUint64Array(500_000).map((_, at) => BigInt(at) * 0x9e3779b97f4a7c15n),
  )
}
const before = process.memoryUsage().external
bigIndex()
const during = process.memoryUsage().external
await collectAll()
const after = process.memoryUsage().external

console.log(
  JSON.stringify({
    overlap: overlaps[kept.view.target],
    isForgottenOpen: isOpen(handle),
    isReported: during - before > 8_000_000,
    isGivenBack: after - before < 4_000_000,
  }),
)
