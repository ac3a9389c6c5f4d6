import fc from 'fast-check'
import { expect, test } from 'vitest'
import { MemoryLedger } from './memory-ledger.js'
import { U64Table } from './u64-table.js'

// Few distinct keys, many of them small integers, so that clusters, collisions and the key zero are common.
const keyArb = fc.oneof(fc.integer({ min: 0, max: 40 }), fc.constantFrom(-1, 1 << 31, 0x7fffffff))
const stepArb = fc.record({
  kind: fc.constantFrom(
    'put' as const,
    'put' as const,
    'delete' as const,
    'shrink' as const,
    'clear' as const,
  ),
  first: keyArb,
  second: fc.constantFrom(0, 0, 1, -7),
  value: fc.integer(),
})

test('a table agrees with a Map through any history of puts, deletes, shrinks and clears', () => {
  fc.assert(
    fc.property(fc.array(stepArb, { maxLength: 200 }), (steps) => {
      const ledger = new MemoryLedger(2 ** 30)
      const table = new U64Table(ledger)
      const twin = new Map<string, number>()
      for (const { kind, first, second, value } of steps) {
        const slot = table.find(first, second)
        const key = `${first}/${second}`
        expect(slot >= 0).toBe(twin.has(key))
        if (kind === 'put') {
          table.setValue(slot >= 0 ? slot : table.insert(first, second), value, ~value)
          twin.set(key, value)
        } else if (kind === 'delete' && slot >= 0) {
          table.delete(slot)
          twin.delete(key)
        } else if (kind === 'shrink') {
          table.shrink()
        } else if (kind === 'clear' && value % 8 === 0) {
          table.clear()
          twin.clear()
        }
        expect(table.size).toBe(twin.size)
        expect(ledger.usedBytes).toBe(table.sizeBytes)
      }
      for (const [key, value] of twin) {
        const [first, second] = key.split('/').map(Number)
        const slot = table.find(first!, second!)
        expect([table.valueFirst(slot), table.valueSecond(slot)]).toEqual([value, ~value])
      }
    }),
  )
})

test('a table filled and emptied again takes no more memory than a new one', () => {
  const ledger = new MemoryLedger(2 ** 30)
  const table = new U64Table(ledger)
  for (let key = 1; key <= 10_000; key++) table.insert(key, key)
  expect(table.sizeBytes).toBeGreaterThan(10_000 * 16)
  expect(ledger.usedBytes).toBe(table.sizeBytes)
  for (let key = 1; key <= 10_000; key++) {
    table.delete(table.find(key, key))
    table.shrink()
  }
  expect([table.sizeBytes, ledger.usedBytes]).toEqual([0, 0])
})

test('one call gives back all that many deletions left unused', () => {
  const table = new U64Table(new MemoryLedger(2 ** 30))
  table.insert(1, 1)
  const sizeBytes = table.sizeBytes
  for (let key = 2; key <= 1000; key++) table.insert(key, key)
  for (let key = 2; key <= 1000; key++) table.delete(table.find(key, key))
  table.shrink()
  expect(table.sizeBytes).toBe(sizeBytes)
  expect(table.find(1, 1)).toBeGreaterThanOrEqual(0)
})

test('at the bound of its memory it refuses new keys, keeps the others, and goes on when there is room', () => {
  const ledger = new MemoryLedger(10_000)
  const table = new U64Table(ledger)
  let count = 0
  while (table.insert(count + 1, 7) >= 0) count++
  expect(count).toBeGreaterThan(50)
  expect(table.insert(count + 1, 7)).toBe(-1)
  expect(table.size).toBe(count)
  for (let key = 1; key <= count; key++) expect(table.find(key, 7)).toBeGreaterThanOrEqual(0)
  expect(ledger.usedBytes).toBe(table.sizeBytes)
  table.delete(table.find(1, 7))
  expect(table.insert(count + 1, 7)).toBeGreaterThanOrEqual(0)
})

test('without any memory not even the key zero fits, and nothing is written that others read', () => {
  const [full, other] = [new U64Table(new MemoryLedger(0)), new U64Table(new MemoryLedger(0))]
  expect([full.insert(0, 0), full.insert(1, 1)]).toEqual([-1, -1])
  expect([other.find(0, 0), other.find(1, 1), other.size]).toEqual([-1, -1, 0])
})
