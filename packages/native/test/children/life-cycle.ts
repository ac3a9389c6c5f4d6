// Ends at the step of the life cycle that its argument names. Whatever happens to be alive, in this thread and in others,
// the process must end with the code that was asked for, and not by a signal.
import { once } from 'node:events'
import { parentPort, workerData } from 'node:worker_threads'
import {
  chainBlockHashes,
  createPrefixIndex,
  nativeStatus,
  newKvEventCounts,
  openPrefixIndex,
} from '../../src/index.js'
import { removedBatch, storedBatch, tokensOf } from '../support/payloads.js'
import { startWorker } from '../support/start-worker.js'

const blockSizeTokens = 4
const stored = storedBatch(1, 64, blockSizeTokens)
const removed = removedBatch(1, 64)
const hashes = chainBlockHashes(tokensOf(1, 64, blockSizeTokens), blockSizeTokens)

function filledIndex() {
  const index = createPrefixIndex()
  const view = index.createView({ blockSizeTokens })
  view.apply(stored, newKvEventCounts())
  return { index, view }
}

/** Applies and matches until `stop`, which is never where the thread is ended from outside. Says when it is well under way. */
function churn(stop: (round: number) => void): never {
  const index = openPrefixIndex(workerData as string)
  const view = index.createView({ blockSizeTokens })
  const counts = newKvEventCounts()
  const overlaps = new Uint32Array(64)
  for (let round = 0; ; round++) {
    view.apply(round % 2 === 0 ? stored : removed, counts)
    index.match(hashes, overlaps, { nowMs: round, levels: 4 })
    if (round === 50) parentPort?.postMessage('churning')
    stop(round)
  }
}

const steps: Record<string, () => void | Promise<void>> = {
  async 'worker gone'() {
    const { index, view } = filledIndex()
    const worker = startWorker(import.meta.url, 'in worker: exit', index.handle)
    const [code] = await once(worker, 'exit')
    if (code !== 7) throw new Error(`the worker ended with ${code}`)
    // What the worker held is gone with it, and what this thread holds is as it was.
    const { targets, pairs } = index.stats()
    if (targets !== 1 || pairs !== 64) throw new Error(`${targets} targets hold ${pairs} pairs`)
    view.close()
  },
  async 'worker terminated'() {
    const { index, view } = filledIndex()
    const worker = startWorker(import.meta.url, 'in worker: endless', index.handle)
    await once(worker, 'message')
    await worker.terminate()
    if (index.stats().targets !== 1) throw new Error('the view of a terminated worker is still there')
    view.close()
  },
  async 'exit while workers work'() {
    const { index } = filledIndex()
    const workers = [0, 1].map(() => startWorker(import.meta.url, 'in worker: endless', index.handle))
    await Promise.all(workers.map((worker) => once(worker, 'message')))
    process.exit(3)
  },
  async 'worker made it'() {
    const worker = startWorker(import.meta.url, 'in worker: make', '')
    const [handle] = (await once(worker, 'message')) as [string]
    const index = openPrefixIndex(handle)
    const overlaps = new Uint32Array(index.targetCount)
    index.match(hashes, overlaps, { nowMs: 0 })
    if (Number(overlaps[0]) !== 64) throw new Error(`an overlap of ${overlaps[0]}`)
    worker.postMessage('end')
    await once(worker, 'exit')
    // The index lives on; the worker's view went with the worker.
    index.match(hashes, overlaps, { nowMs: 0 })
    if (overlaps[0] !== 0 || index.stats().targets !== 0) throw new Error('a view outlived its thread')
    index.addTarget()
  },
  'after load'() {
    process.exit(3)
  },
  'with everything alive'() {
    const { index, view } = filledIndex()
    process.on('exit', () => {
      process.exitCode = index.targetCount === 1 && view.stats().names === 64 ? 0 : 4
    })
  },
  'exit with everything alive'() {
    filledIndex()
    process.exit(3)
  },
  'exit in the middle of applies'() {
    const { index, view } = filledIndex()
    const counts = newKvEventCounts()
    for (let round = 0; ; round++) {
      view.apply(round % 2 === 0 ? removed : stored, counts)
      index.match(hashes, new Uint32Array(1), { nowMs: round })
      if (round === 1000) process.exit(3)
    }
  },
  'uncaught error'() {
    filledIndex()
    throw new Error('on purpose')
  },
  'after close'() {
    const { view } = filledIndex()
    view.close()
    process.exit(3)
  },
  'use in an exit handler'() {
    process.on('exit', () => {
      const { index, view } = filledIndex()
      view.close()
      process.exitCode = index.stats().targets === 0 ? 3 : 4
    })
  },
  'in worker: exit'() {
    churn((round) => {
      if (round === 200) process.exit(7)
    })
  },
  'in worker: endless'() {
    churn(() => undefined)
  },
  async 'in worker: make'() {
    const { index, view } = filledIndex()
    parentPort?.postMessage(index.handle)
    if (parentPort) await once(parentPort, 'message')
    process.exitCode = view.stats().names === 64 ? 0 : 1
  },
}

if (!nativeStatus().isNative) throw new Error(nativeStatus().reason)
await steps[process.argv.at(-1)!]!()
