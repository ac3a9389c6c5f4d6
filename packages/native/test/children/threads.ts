// Worker threads and the main thread store, remove and match in one index at once. Each thread has views of its own; in the end
// every thread sees the same, and it is what one thread alone would have made.
import { once } from 'node:events'
import { isMainThread, parentPort, workerData } from 'node:worker_threads'
import { chainBlockHashes, createPrefixIndex, newKvEventCounts, openPrefixIndex } from '../../src/index.js'
import { removedBatch, storedBatch, tokensOf } from '../support/payloads.js'
import { startWorker } from '../support/start-worker.js'

const blockSizeTokens = 4
const blockCount = 64
const workerCount = 3
const rounds = 400
const shared = chainBlockHashes(tokensOf(1, blockCount, blockSizeTokens), blockSizeTokens)

/** Ends with the shared prompt stored, and with nothing of the thread's own prompt. */
function work(handle: string, thread: number) {
  const index = openPrefixIndex(handle)
  const view = index.createView({ blockSizeTokens })
  const counts = newKvEventCounts()
  const overlaps = new Uint32Array(4 * 16)
  const mine = 100_000 * (thread + 1)
  const own = tokensOf(mine, blockCount, blockSizeTokens)
  view.apply(storedBatch(1, blockCount, blockSizeTokens), counts)
  for (let round = 0; round < rounds; round++) {
    view.apply(storedBatch(mine, blockCount, blockSizeTokens), counts)
    index.matchTokens(own, blockSizeTokens, overlaps, { nowMs: round, levels: 4 })
    // Nobody else has this prompt, so what this thread just did is all that there is to see.
    if (overlaps[view.target] !== blockCount) throw new Error(`an overlap of ${overlaps[view.target]}`)
    index.match(shared, overlaps, { nowMs: round })
    if (overlaps[view.target] !== blockCount) throw new Error(`an overlap of ${overlaps[view.target]}`)
    view.apply(removedBatch(mine, blockCount), counts)
  }
  return { view, counts }
}

if (isMainThread) {
  const index = createPrefixIndex({ verifyOneIn: 1 })
  const workers = Array.from({ length: workerCount }, (_, thread) =>
    startWorker(import.meta.url, '', { handle: index.handle, thread }),
  )
  const answers = Promise.all(workers.map((worker) => once(worker, 'message')))
  const { view } = work(index.handle, workerCount)
  const targets = [view.target, ...(await answers).map(([target]) => target as number)]
  const overlaps = new Uint32Array(index.targetCount)
  index.match(shared, overlaps, { nowMs: rounds })
  const { pairs, mismatches, verifiedMatches } = index.stats()
  console.log(
    JSON.stringify({
      distinctTargets: new Set(targets).size,
      overlaps: targets.map((target) => overlaps[target]),
      pairs,
      mismatches,
      areMatchesVerified: verifiedMatches > 0,
    }),
  )
  for (const worker of workers) worker.postMessage('end')
  await Promise.all(workers.map((worker) => once(worker, 'exit')))
  if (index.stats().targets !== 1) throw new Error('a thread left a target behind')
} else {
  const { handle, thread } = workerData as { handle: string; thread: number }
  const { view, counts } = work(handle, thread)
  if (counts.storedBlocks !== (rounds + 1) * blockCount) throw new Error(`stored ${counts.storedBlocks}`)
  parentPort?.postMessage(view.target)
  await once(parentPort!, 'message')
  view.close()
  parentPort?.close()
}
