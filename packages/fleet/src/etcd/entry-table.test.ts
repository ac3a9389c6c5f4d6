import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { EntryBoard } from '../entry-board.js'
import type { LogFields } from '../ports/logger.js'
import { parseWorkerRecord } from '../records/worker-record.js'
import { VirtualClock } from '../virtual-clock.js'
import { EntryTable, type EntryTableOptions, type RecordKeyValue } from './entry-table.js'

const prefix = '/w/'

/** The reference's record of a worker. */
const textOf = (id: string, more: Record<string, unknown> = {}) =>
  JSON.stringify({ worker_id: id, url: `http://${id}`, model_name: 'm', ...more })

function keyOf(
  id: string,
  revision: number,
  value: string | Buffer = textOf(id),
  lease = '7',
): RecordKeyValue {
  return {
    key: Buffer.from(prefix + id),
    value: Buffer.from(value as string),
    mod_revision: String(revision),
    lease,
  }
}

function tableOf(options: Partial<EntryTableOptions> = {}) {
  const clock = new VirtualClock()
  const board = new EntryBoard(1_000)
  const lines: (LogFields & { message: string })[] = []
  const say = (fields: LogFields, message: string) => void lines.push({ ...fields, message })
  const table = new EntryTable({
    kind: 'worker',
    prefix,
    board,
    dataLossGraceMs: 100,
    entriesMax: 1_000,
    recordBytesMax: 10_000,
    clock,
    logger: { debug: say, info: say, warn: say, error: say },
    ...options,
  })
  const changes: string[] = []
  const iterator = board.watch()[Symbol.asyncIterator]()
  /** What a watcher was told since the last call. */
  const told = async () => {
    board.put({ kind: 'worker', record: parseWorkerRecord(JSON.parse(textOf('end'))) })
    for (;;) {
      const { value: change } = await iterator.next()
      if (change.type === 'snapshot') continue
      if (change.type === 'entryRemoved') changes.push(`-${change.id} ${change.reason}`)
      else if (change.entry.kind === 'worker') {
        if (change.entry.record.worker_id === 'end') break
        changes.push(`+${change.entry.record.worker_id}`)
      }
    }
    board.remove('worker', 'end', 'deregistered')
    await iterator.next()
    return changes.splice(0)
  }
  const pool = () => board.idsOf('worker').sort().join(' ')
  return { table, clock, lines, told, pool, begin: () => iterator.next() }
}

describe('the keys under a prefix', () => {
  test('a list is told as the difference from what was known', async () => {
    const { table, told, begin } = tableOf()
    await begin()
    table.list([keyOf('a:1', 1), keyOf('b:1', 2), keyOf('c:1', 3)], false)
    expect(await told()).toEqual(['+a:1', '+b:1', '+c:1'])
    table.list(
      [keyOf('a:1', 1), keyOf('b:1', 5, textOf('b:1', { kv_block_size: 4 })), keyOf('d:1', 6)],
      false,
    )
    expect(await told()).toEqual(['+b:1', '+d:1', '-c:1 leaseLost'])
  })

  test('a key that was put again unchanged is no news', async () => {
    const { table, told, begin } = tableOf()
    await begin()
    table.put(keyOf('a:1', 1))
    table.put(keyOf('a:1', 2, textOf('a:1'), '8'))
    expect(await told()).toEqual(['+a:1'])
  })

  test('one that is deleted leaves at once, and once', async () => {
    const { table, told, begin } = tableOf()
    await begin()
    table.put(keyOf('a:1', 1))
    table.delete(Buffer.from(`${prefix}a:1`))
    table.delete(Buffer.from(`${prefix}a:1`))
    table.delete(Buffer.from(`${prefix}never:1`))
    expect(await told()).toEqual(['+a:1', '-a:1 deregistered'])
  })

  test('at the bound no further record is admitted, until one leaves', () => {
    const { table, pool, lines } = tableOf({ entriesMax: 2 })
    table.list([keyOf('a:1', 1), keyOf('b:1', 2), keyOf('c:1', 3), keyOf('d:1', 4)], false)
    expect(pool()).toBe('a:1 b:1')
    expect(lines).toHaveLength(1)
    table.put(keyOf('b:1', 5, textOf('b:1', { status: 'draining' })))
    table.delete(Buffer.from(`${prefix}a:1`))
    table.put(keyOf('c:1', 3))
    expect(pool()).toBe('b:1 c:1')
  })
})

test('those that a list no longer names make room for others that it does', () => {
  const { table, pool } = tableOf({ entriesMax: 2 })
  table.list([keyOf('a:1', 1), keyOf('b:1', 2)], false)
  table.list([keyOf('a:1', 1), keyOf('c:1', 3), keyOf('d:1', 4)], false)
  expect(pool()).toBe('a:1 c:1')
})

describe('an etcd that has lost its data', () => {
  test('is given its grace: records that are put again stay, others go when it is over', async () => {
    const { table, clock, told, begin } = tableOf()
    await begin()
    table.list([keyOf('a:1', 1), keyOf('b:1', 2)], false)
    table.list([], true)
    clock.advance(99)
    table.put(keyOf('b:1', 2, textOf('b:1'), '9'))
    expect(await told()).toEqual(['+a:1', '+b:1'])
    clock.advance(1)
    expect(await told()).toEqual(['-a:1 leaseLost'])
    expect(clock.pendingTimers).toBe(0)
  })

  test('is known by its keys, too, where its revisions have passed the old ones', () => {
    const { table, clock, pool } = tableOf()
    table.list([keyOf('a:1', 1), keyOf('b:1', 2), keyOf('c:1', 3)], false)
    // The very same revision, but under a lease of the new one.
    table.list([keyOf('b:1', 2, textOf('b:1'), '9')], false)
    expect(pool()).toBe('a:1 b:1 c:1')
    clock.advance(100)
    expect(pool()).toBe('b:1')
  })

  test('is not suspected while one key is as it was: what is missing is gone', () => {
    const { table, clock, pool } = tableOf()
    table.list([keyOf('a:1', 1), keyOf('b:1', 2), keyOf('c:1', 3)], false)
    table.list([keyOf('b:1', 2)], false)
    expect(pool()).toBe('b:1')
    expect(clock.pendingTimers).toBe(0)
  })

  test('lists again and again without cutting short what is in doubt, and a delete ends it at once', () => {
    const { table, clock, pool } = tableOf()
    table.list([keyOf('a:1', 1), keyOf('b:1', 2), keyOf('c:1', 3)], false)
    table.list([keyOf('c:1', 1, textOf('c:1'), '9')], true)
    table.list([keyOf('c:1', 1, textOf('c:1'), '9')], false)
    expect(pool()).toBe('a:1 b:1 c:1')
    table.delete(Buffer.from(`${prefix}a:1`))
    expect(pool()).toBe('b:1 c:1')
    table.list([keyOf('a:1', 8, textOf('a:1'), '9')], true)
    clock.advance(99)
    expect(pool()).toBe('a:1 b:1 c:1')
    clock.advance(1)
    expect(pool()).toBe('a:1')
  })

  test('leaves no timer behind', () => {
    const { table, clock } = tableOf()
    table.list([keyOf('a:1', 1)], false)
    table.list([], false)
    expect(clock.pendingTimers).toBe(1)
    table.close()
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('a value', () => {
  test.each([
    ['is no JSON', 'nonsense', /JSON/],
    ['is no object', '[1]', /invalid worker record/],
    ['lacks a field', '{"worker_id":"a:1"}', /url/],
    ['names another worker', textOf('b:1'), /its id is 'b:1'/],
    ['is too large', textOf('a:1', { x: 'x'.repeat(10_000) }), /more than 10000 bytes/],
  ])('that %s is reported, and leaves what was known', (_what, value, reason) => {
    const { table, pool, lines } = tableOf()
    table.put(keyOf('a:1', 1, value))
    expect(pool()).toBe('')
    table.put(keyOf('a:1', 2))
    table.put(keyOf('a:1', 3, value))
    expect(pool()).toBe('a:1')
    expect(lines).toHaveLength(2)
    for (const line of lines) {
      expect(line).toMatchObject({
        key: '/w/a:1',
        message: 'a record in etcd cannot be used: what was known stays',
      })
      expect(line.reason).toMatch(reason)
    }
  })

  test('of any bytes, or cut anywhere, is the record or nothing', () => {
    const whole = Buffer.from(textOf('a:1', { status: 'draining', note: '漢字🦄' }))
    const cut = fc.nat(whole.length).map((length) => whole.subarray(0, length))
    const bytes = fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array))
    fc.assert(
      fc.property(
        fc.oneof(
          cut,
          bytes,
          fc.json().map((text) => Buffer.from(text)),
        ),
        (value) => {
          const { table, pool } = tableOf()
          table.list([keyOf('a:1', 1, value), keyOf('z:1', 2)], false)
          expect(pool()).toBe(value.equals(whole) ? 'a:1 z:1' : 'z:1')
        },
      ),
    )
  })
})

test('whatever is listed, put and deleted, the pool is what the last word on each id says', () => {
  const ids = ['a:1', 'b:1', 'c:1', 'd:1']
  const step = fc.oneof(
    fc.record({ type: fc.constant('put' as const), id: fc.constantFrom(...ids), isGood: fc.boolean() }),
    fc.record({ type: fc.constant('delete' as const), id: fc.constantFrom(...ids) }),
    fc.record({ type: fc.constant('list' as const), ids: fc.subarray(ids), isOther: fc.boolean() }),
  )
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const { table, clock, pool } = tableOf()
      const expected = new Set<string>()
      let revision = 0
      for (const each of steps) {
        if (each.type === 'put') {
          table.put(keyOf(each.id, ++revision, each.isGood ? textOf(each.id) : '{'))
          if (each.isGood) expected.add(each.id)
        } else if (each.type === 'delete') {
          table.delete(Buffer.from(prefix + each.id))
          expected.delete(each.id)
        } else {
          const before = pool()
          table.list(
            each.ids.map((id) => keyOf(id, ++revision)),
            each.isOther,
          )
          // Nothing that may come back leaves before the grace is over.
          for (const id of before.split(' ').filter(Boolean)) expect(pool()).toContain(id)
          clock.advance(100)
          expected.clear()
          for (const id of each.ids) expected.add(id)
        }
        expect(pool()).toBe([...expected].sort().join(' '))
      }
      expect(clock.pendingTimers).toBe(0)
    }),
  )
})

/** What the table should hold, without timers or sets: each id with the time at which it goes, looked at whenever asked. */
class Twin {
  readonly entries = new Map<string, { version: string; note: number; goneAtMs: number }>()
  readonly #entriesMax: number
  readonly #graceMs: number
  nowMs = 0

  constructor(entriesMax: number, graceMs: number) {
    this.#entriesMax = entriesMax
    this.#graceMs = graceMs
  }

  pass(ms: number): void {
    this.nowMs += ms
    for (const [id, { goneAtMs }] of this.entries) if (goneAtMs <= this.nowMs) this.entries.delete(id)
  }

  put(id: string, { version, note, isGood }: Stored): void {
    const known = this.entries.get(id)
    if (!known && (!isGood || this.entries.size === this.#entriesMax)) return
    this.entries.set(id, { version, note: isGood ? note : (known?.note ?? note), goneAtMs: Infinity })
  }

  list(store: ReadonlyMap<string, Stored>, isOther: boolean): void {
    const isSame = [...store].some(([id, { version }]) => this.entries.get(id)?.version === version)
    for (const [id, stored] of store) this.put(id, stored)
    const missing = [...this.entries].filter(([id]) => !store.has(id)).map(([, entry]) => entry)
    const isSurprise = missing.some(({ goneAtMs }) => goneAtMs === Infinity)
    for (const entry of missing) {
      if (!isSurprise) continue
      if (isOther || !isSame) entry.goneAtMs = this.nowMs + this.#graceMs
      else if (entry.goneAtMs === Infinity) entry.goneAtMs = this.nowMs
    }
    this.pass(0)
    for (const [id, stored] of store) if (!this.entries.has(id)) this.put(id, stored)
  }
}

interface Stored {
  readonly version: string
  readonly note: number
  readonly isGood: boolean
  readonly key: RecordKeyValue
}

test('through missed changes, lost data, broken values and a full table it holds what its slow twin holds', async () => {
  const id = fc.constantFrom('a:1', 'b:1', 'c:1', 'd:1', 'e:1')
  const value = fc.constantFrom(
    'good' as const,
    'good' as const,
    'broken' as const,
    'large' as const,
    'other' as const,
  )
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.record({ put: id, value, isTold: fc.boolean() }) },
    { weight: 2, arbitrary: fc.record({ delete: id, isTold: fc.boolean() }) },
    { weight: 3, arbitrary: fc.constant({ list: true as const }) },
    { weight: 1, arbitrary: fc.constant({ lose: true as const }) },
    { weight: 3, arbitrary: fc.record({ pass: fc.integer({ min: 1, max: 120 }) }) },
  )
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60, size: 'max' }), async (steps) => {
      const board = new EntryBoard(1)
      const { table, clock } = tableOf({ board, entriesMax: 3, recordBytesMax: 200 })
      const twin = new Twin(3, 100)
      const store = new Map<string, Stored>()
      let [revision, leases, isOther] = [0, 0, false]
      const notes = async () => {
        const iterator = board.watch()[Symbol.asyncIterator]()
        const { value: change } = await iterator.next()
        await iterator.return?.()
        const entries = change.type === 'snapshot' ? change.entries : []
        return new Map(
          entries.map(({ record }: { record: { worker_id: string; note: number } }) => [
            record.worker_id,
            record.note,
          ]),
        )
      }
      for (const [note, each] of steps.entries()) {
        if ('put' in each) {
          const values = {
            good: textOf(each.put, { note }),
            broken: '{',
            large: textOf(each.put, { note, x: 'x'.repeat(200) }),
            other: textOf('z:1', { note }),
          }
          const key = keyOf(each.put, ++revision, values[each.value], String(++leases))
          const stored = { version: `${revision} ${leases}`, note, isGood: each.value === 'good', key }
          store.set(each.put, stored)
          if (!each.isTold) continue
          table.put(key)
          twin.put(each.put, stored)
        } else if ('delete' in each) {
          revision += 1
          store.delete(each.delete)
          if (!each.isTold) continue
          table.delete(Buffer.from(prefix + each.delete))
          twin.entries.delete(each.delete)
        } else if ('lose' in each) {
          store.clear()
          revision = 0
          isOther = true
        } else if ('list' in each) {
          table.list(
            [...store.values()].map(({ key }) => key),
            isOther,
          )
          twin.list(store, isOther)
          isOther = false
        } else {
          clock.advance(each.pass)
          twin.pass(each.pass)
        }
        expect(await notes()).toEqual(new Map([...twin.entries].map(([name, entry]) => [name, entry.note])))
      }
    }),
    { numRuns: 300 },
  )
})
