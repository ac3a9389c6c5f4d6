import fc from 'fast-check'
import { expect, test } from 'vitest'
import { EntryBoard } from '../entry-board.js'
import type { FleetChange, FleetEntry } from '../ports/discovery.js'
import { VirtualClock } from '../virtual-clock.js'
import { WORKER_ANNOTATION } from './annotations.js'
import { type Pod, readPod } from './pod.js'
import { PodTable } from './pod-table.js'

interface PodDraft {
  readonly name: string
  readonly uid?: string
  readonly id?: string | null
  readonly phase?: string
  readonly terminating?: boolean
  readonly ready?: boolean
  readonly created?: number
}

function podOf(draft: PodDraft): Pod {
  const { name, uid = name, id = `${name}:1`, phase = 'Running', created = 0 } = draft
  const record = { worker_id: id, url: 'link://x', model_name: 'm' }
  const text = id === 'bad' ? '{' : JSON.stringify(record)
  return readPod({
    metadata: {
      name,
      namespace: 'ns',
      uid,
      creationTimestamp: `2026-01-01T00:00:0${created}Z`,
      ...(draft.terminating ? { deletionTimestamp: '2026-01-01T00:00:09Z' } : {}),
      annotations: id === null ? {} : { [WORKER_ANNOTATION]: text },
    },
    status: {
      phase,
      conditions: [{ type: 'ContainersReady', status: draft.ready === false ? 'False' : 'True' }],
    },
  }) as Pod
}

function tableOf(more: { podsMax?: number } = {}) {
  const board = new EntryBoard(1024)
  const clock = new VirtualClock()
  const warnings: string[] = []
  const note = (_fields: unknown, message: string) => warnings.push(message)
  const table = new PodTable({
    board,
    clock,
    podsMax: 100,
    notReadyGraceMs: 1_000,
    foreignAddress: 'refuse',
    logger: { debug: note, info: note, warn: note, error: note },
    ...more,
  })
  const iterator = board.watch()[Symbol.asyncIterator]()
  return { board, clock, table, iterator, warnings }
}

/** What a new watcher would be told, as short texts. */
async function poolOf(board: EntryBoard): Promise<string> {
  const first = await board.watch()[Symbol.asyncIterator]().next()
  const change = first.value as Extract<FleetChange, { type: 'snapshot' }>
  return change.entries.map(nameOf).sort().join(' ')
}

function nameOf(entry: FleetEntry): string {
  if (entry.kind === 'server') return entry.record.server_id
  return `${entry.record.worker_id}${entry.record.status === 'active' ? '' : '!'}`
}

test('a Pod that changes its id takes the old one along', async () => {
  const { board, table } = tableOf()
  table.put(podOf({ name: 'p', id: 'a:1' }))
  table.put(podOf({ name: 'p', id: 'b:1' }))
  expect(await poolOf(board)).toBe('b:1')
  expect(table.podCount).toBe(1)
})

test('a Pod of the same name but another uid is another Pod', async () => {
  const { board, table } = tableOf()
  table.put(podOf({ name: 'p', uid: 'old' }))
  table.put(podOf({ name: 'p', uid: 'new', terminating: true }))
  expect(await poolOf(board)).toBe('')
  table.put(podOf({ name: 'p', uid: 'new2' }))
  table.remove(podOf({ name: 'p', uid: 'old' }))
  expect(await poolOf(board)).toBe('p:1')
})

test('of two Pods with one id the one that takes work has it, the older of two such, and the other when it leaves', async () => {
  const { board, table } = tableOf()
  const old = { name: 'old', id: 'x', created: 1 }
  const young = { name: 'young', id: 'x', created: 2 }
  table.put(podOf(young))
  table.put(podOf(old))
  expect(await poolOf(board)).toBe('x')
  table.put(podOf({ ...old, terminating: true }))
  expect(await poolOf(board)).toBe('x')
  table.put(podOf({ ...young, terminating: true }))
  expect(await poolOf(board)).toBe('x!')
  table.remove(podOf(young))
  expect(await poolOf(board)).toBe('x!')
  table.remove(podOf(old))
  expect(await poolOf(board)).toBe('')
})

test('a worker whose containers stay unready drains after the grace, and is active again when they are ready', async () => {
  const { board, clock, table } = tableOf()
  table.put(podOf({ name: 'p', ready: false }))
  clock.advance(999)
  table.put(podOf({ name: 'p', ready: false }))
  expect(await poolOf(board)).toBe('p:1')
  clock.advance(1)
  expect(await poolOf(board)).toBe('p:1!')
  table.put(podOf({ name: 'p' }))
  expect(await poolOf(board)).toBe('p:1')
})

test('unready for less than the grace is nothing, and the grace begins anew each time', async () => {
  const { board, clock, table } = tableOf()
  for (let round = 0; round < 3; round++) {
    table.put(podOf({ name: 'p', ready: false }))
    clock.advance(900)
    table.put(podOf({ name: 'p' }))
  }
  expect(await poolOf(board)).toBe('p:1')
  expect(clock.pendingTimers).toBe(0)
})

test('no timer outlives its Pod', () => {
  const { clock, table } = tableOf()
  table.put(podOf({ name: 'p', ready: false }))
  table.put(podOf({ name: 'q', ready: false }))
  table.put(podOf({ name: 'r', ready: false }))
  table.remove(podOf({ name: 'p' }))
  table.put(podOf({ name: 'q', terminating: true }))
  expect(clock.pendingTimers).toBe(1)
  table.close()
  expect(clock.pendingTimers).toBe(0)
})

test('a broken annotation is reported once, not with every change of its Pod', () => {
  const { table, warnings } = tableOf()
  for (let count = 0; count < 3; count++) table.put(podOf({ name: 'p', id: 'bad' }))
  expect(warnings).toEqual(['annotation cannot be used: what was known stays'])
  table.remove(podOf({ name: 'p' }))
  expect(table.podCount).toBe(0)
})

test('at the bound no further Pod is admitted, until one leaves', async () => {
  const { board, table, warnings } = tableOf({ podsMax: 2 })
  for (const name of ['a', 'b', 'c', 'd']) table.put(podOf({ name }))
  expect(await poolOf(board)).toBe('a:1 b:1')
  expect(warnings).toHaveLength(1)
  table.remove(podOf({ name: 'a' }))
  table.put(podOf({ name: 'c' }))
  expect(await poolOf(board)).toBe('b:1 c:1')
})

const draftArb: fc.Arbitrary<PodDraft> = fc.record({
  name: fc.constantFrom('p', 'q', 'r'),
  uid: fc.constantFrom('1', '2'),
  id: fc.constantFrom('a', 'b', 'c', null, 'bad'),
  phase: fc.constantFrom('Running', 'Running', 'Running', 'Failed'),
  terminating: fc.boolean(),
  created: fc.constant(0),
})
const stepArb = fc.oneof(
  { weight: 5, arbitrary: fc.record({ put: draftArb }) },
  { weight: 1, arbitrary: fc.record({ remove: draftArb }) },
  {
    weight: 1,
    arbitrary: fc.record({ list: fc.uniqueArray(draftArb, { selector: (draft) => draft.name }) }),
  },
)

/** The decision table, told as slowly as possible: one record per Pod, and the pool counted out anew each time. */
class SlowTable {
  readonly #pods = new Map<string, { uid: string; id: string; isDraining: boolean }>()

  put(draft: PodDraft): void {
    const { name, uid = '', id = null } = draft
    if (this.#pods.get(name)?.uid !== uid) this.#pods.delete(name)
    const before = this.#pods.get(name)
    if (draft.phase !== 'Running' || id === null) this.#pods.delete(name)
    else if (draft.terminating && before) before.isDraining = true
    else if (!draft.terminating && id !== 'bad') {
      // Nothing takes a deletion back, except in this test: what has begun to drain goes on with its id.
      const isDraining = before?.isDraining === true && before.id === id
      this.#pods.set(name, { uid, id, isDraining })
    }
  }

  remove(draft: PodDraft): void {
    if (this.#pods.get(draft.name)?.uid === draft.uid) this.#pods.delete(draft.name)
  }

  list(drafts: readonly PodDraft[]): void {
    for (const name of [...this.#pods.keys()]) {
      if (!drafts.some((draft) => draft.name === name)) this.#pods.delete(name)
    }
    for (const draft of drafts) this.put(draft)
  }

  get pool(): string {
    const ids = new Set([...this.#pods.values()].map(({ id }) => id))
    const isBusy = (id: string) => [...this.#pods.values()].some((pod) => pod.id === id && !pod.isDraining)
    return [...ids]
      .map((id) => (isBusy(id) ? id : `${id}!`))
      .sort()
      .join(' ')
  }
}

test('whatever happens to Pods, the pool is what the decision table says, and a watcher is told no more than the changes', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(stepArb, { maxLength: 40 }), async (steps) => {
      const { board, table, iterator } = tableOf()
      const slow = new SlowTable()
      const told = new Map<string, string>()
      let pending = iterator.next()
      for (const step of steps) {
        if ('put' in step) {
          table.put(podOf(step.put))
          slow.put(step.put)
        } else if ('remove' in step) {
          table.remove(podOf(step.remove))
          slow.remove(step.remove)
        } else {
          table.reconcile('ns', step.list.map(podOf))
          slow.list(step.list)
        }
        expect(await poolOf(board)).toBe(slow.pool)
      }
      const end = podOf({ name: 'end', id: 'end' })
      table.put(end)
      for (;;) {
        const change = (await pending).value as FleetChange
        pending = iterator.next()
        if (change.type === 'entryPut') {
          const { worker_id: id } = change.entry.record as { worker_id: string }
          if (id === 'end') break
          expect(told.get(id)).not.toBe(nameOf(change.entry))
          told.set(id, nameOf(change.entry))
        } else if (change.type === 'entryRemoved') expect(told.delete(change.id)).toBe(true)
      }
      expect([...told.values()].sort().join(' ')).toBe(slow.pool)
    }),
  )
})
