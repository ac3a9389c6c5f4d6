import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { KvEventMessage } from '../ports/kv-events.js'
import { KvReaderQueue } from './kv-reader-queue.js'

const batch = (rank: number, sequence: number, sizeBytes = 100): KvEventMessage => ({
  type: 'batch',
  rank,
  sequence,
  payload: new Uint8Array(sizeBytes),
})
const snapshot = (rank: number, sequence: number): KvEventMessage => ({
  type: 'snapshot',
  rank,
  sequence,
  payloads: [],
})
const nameOf = (message: KvEventMessage) => `${message.type} ${message.rank}:${message.sequence}`

test('messages come in order, a snapshot in the place of what was held of its rank', async () => {
  const messageArb = fc.record({ rank: fc.nat(2), isSnapshot: fc.boolean(), read: fc.boolean() })
  await fc.assert(
    fc.asyncProperty(fc.array(messageArb), async (steps) => {
      const queue = new KvReaderQueue(1e9, () => {})
      let slow: string[] = []
      for (const [sequence, { rank, isSnapshot, read }] of steps.entries()) {
        const message = isSnapshot ? snapshot(rank, sequence) : batch(rank, sequence)
        queue.push(message)
        if (isSnapshot) slow = slow.filter((name) => !name.includes(` ${rank}:`))
        slow.push(nameOf(message))
        if (read) expect(nameOf((await queue.next()).value)).toBe(slow.shift())
      }
      for (const name of slow) expect(nameOf((await queue.next()).value)).toBe(name)
      expect(queue.isEmpty).toBe(true)
    }),
  )
})

test('at the bound a batch is not taken, and there is room again once others are read or dropped', async () => {
  let emptied = 0
  const queue = new KvReaderQueue(400, () => {
    emptied += 1
  })
  expect(queue.push(batch(0, 0))).toBe(true)
  expect(queue.push(batch(1, 0))).toBe(true)
  expect(queue.push(batch(0, 1))).toBe(false)
  queue.dropRank(0)
  expect(queue.push(batch(0, 1))).toBe(true)
  await queue.next()
  expect(emptied).toBe(0)
  await queue.next()
  expect(emptied).toBe(1)
  expect(queue.push(batch(0, 2, 10_000))).toBe(true)
})

test('the end drops what is held, and an error is thrown once, to whoever waits or comes next', async () => {
  const error = new Error('over')
  const late = new KvReaderQueue(400, () => {})
  late.push(batch(0, 0))
  late.end(error)
  await expect(late.next()).rejects.toBe(error)
  expect((await late.next()).done).toBe(true)
  const awaited = new KvReaderQueue(400, () => {})
  const next = awaited.next()
  awaited.end(error)
  await expect(next).rejects.toBe(error)
  expect((await awaited.next()).done).toBe(true)
  const plain = new KvReaderQueue(400, () => {})
  const waiting = plain.next()
  plain.end()
  expect((await waiting).done).toBe(true)
})
