import fc from 'fast-check'
import { expect, test } from 'vitest'
import { EntryBoard } from './entry-board.js'
import type { FleetChange } from './ports/discovery.js'
import { parseWorkerRecord } from './records/worker-record.js'

const entryOf = (id: string, version: number) => ({
  kind: 'worker' as const,
  record: parseWorkerRecord({ worker_id: id, url: 'http://w', model_name: 'm', version }),
})

test('whatever the pace of a watcher, what it sees adds up to what is there', async () => {
  const step = fc.oneof(
    fc.record({ put: fc.constantFrom('a', 'b', 'c', 'd') }),
    fc.record({ remove: fc.constantFrom('a', 'b', 'c', 'd') }),
    fc.record({ read: fc.nat(4) }),
  )
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 60 }),
      fc.integer({ min: 1, max: 5 }),
      async (steps, bufferMax) => {
        const board = new EntryBoard(bufferMax)
        const truth = new Map<string, number>()
        const seen = new Map<string, number>()
        const watcher = board.watch()[Symbol.asyncIterator]()
        let pending: Promise<IteratorResult<FleetChange>> | undefined
        /** Reads one change if there is one; otherwise keeps waiting for it across steps. */
        const read = async () => {
          pending ??= watcher.next()
          const next = await Promise.race([
            pending,
            new Promise<undefined>((resolve) => {
              setImmediate(() => resolve(undefined))
            }),
          ])
          if (!next) return
          pending = undefined
          if (!next.done) apply(seen, next.value)
        }
        let version = 0
        for (const each of steps) {
          if ('put' in each) {
            truth.set(each.put, ++version)
            board.put(entryOf(each.put, version))
          } else if ('remove' in each) {
            truth.delete(each.remove)
            board.remove('worker', each.remove, 'leaseLost')
          } else {
            for (let count = 0; count < each.read; count++) await read()
          }
        }
        // A last change marks the end of what there is to read.
        board.put(entryOf('end', 0))
        while (!seen.has('end')) await read()
        seen.delete('end')
        expect(seen).toEqual(truth)
        await watcher.return?.()
      },
    ),
  )
})

function apply(seen: Map<string, number>, change: FleetChange): void {
  const put = (entry: Extract<FleetChange, { type: 'entryPut' }>['entry']) => {
    if (entry.kind === 'worker') seen.set(entry.record.worker_id, Number(entry.record.version))
  }
  if (change.type === 'snapshot') {
    seen.clear()
    change.entries.forEach(put)
  } else if (change.type === 'entryPut') put(change.entry)
  else expect(seen.delete(change.id)).toBe(true)
}
