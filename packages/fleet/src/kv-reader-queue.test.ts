import { describe, expect, test } from 'vitest'
import { TransportError } from './errors.js'
import { KvReaderQueue } from './kv-reader-queue.js'
import type { KvEventMessage } from './ports/kv-events.js'

const batch = (sequence: number, { rank = 0, sizeBytes = 36 } = {}): KvEventMessage => ({
  type: 'batch',
  rank,
  sequence,
  payload: new Uint8Array(sizeBytes),
})
const snapshot = (sequence: number, rank = 0): KvEventMessage => ({
  type: 'snapshot',
  rank,
  sequence,
  payloads: [new Uint8Array(10_000)],
})
const numbers = async (queue: KvReaderQueue, count: number) => {
  const read: unknown[] = []
  for (let index = 0; index < count; index++) read.push((await queue.next()).value?.sequence)
  return read
}

describe('the queue of a reader', () => {
  test('live batches fit up to the bound; one always does', async () => {
    const queue = new KvReaderQueue(200, () => {})
    expect([queue.push(batch(0)), queue.push(batch(1)), queue.push(batch(2))]).toEqual([true, true, false])
    expect(await numbers(queue, 2)).toEqual([0, 1])
    expect(queue.push(batch(3, { sizeBytes: 5_000 }))).toBe(true)
    expect(queue.push(batch(4))).toBe(false)
    expect(await numbers(queue, 1)).toEqual([3])
    expect(queue.push(batch(5))).toBe(true)
  })

  test('snapshots and repairs fit whatever is held', async () => {
    const queue = new KvReaderQueue(100, () => {})
    queue.push(batch(0, { rank: 1 }))
    expect(queue.push(snapshot(7))).toBe(true)
    expect(queue.push(batch(8), { isRepair: true })).toBe(true)
    expect(await numbers(queue, 3)).toEqual([0, 7, 8])
  })

  test('a snapshot replaces what is held of its rank, and gives the room back', async () => {
    const queue = new KvReaderQueue(200, () => {})
    queue.push(batch(0))
    queue.push(batch(9, { rank: 1 }))
    queue.push(snapshot(3))
    expect(queue.isDrained(0, 'batch')).toBe(true)
    expect(queue.isDrained(0)).toBe(false)
    expect(queue.push(batch(4))).toBe(true)
    expect(await numbers(queue, 3)).toEqual([9, 3, 4])
    expect(queue.isDrained(0)).toBe(true)
  })

  test('order survives thousands of messages, held and awaited', async () => {
    const queue = new KvReaderQueue(1 << 20, () => {})
    const read: unknown[] = []
    for (let round = 0; round < 3; round++) {
      for (let index = 0; index < 1_500; index++) queue.push(batch(round * 1_500 + index))
      read.push(...(await numbers(queue, 1_500)))
    }
    const pending = queue.next()
    queue.push(batch(4_500))
    read.push((await pending).value?.sequence)
    expect(read).toEqual(Array.from({ length: 4_501 }, (_, index) => index))
  })

  test('the end drops what is held, and an error is thrown once', async () => {
    const queue = new KvReaderQueue(200, () => {})
    queue.push(batch(0))
    queue.end(new TransportError('INFERA_FLEET_WORKER_FAILED', 'w', 'why'))
    await expect(queue.next()).rejects.toThrow('why')
    expect((await queue.next()).done).toBe(true)
    expect(queue.push(batch(1))).toBe(true)
    expect((await queue.next()).done).toBe(true)
  })

  test('the end releases a reader that waits', async () => {
    const queue = new KvReaderQueue(200, () => {})
    const pending = queue.next()
    queue.end()
    expect((await pending).done).toBe(true)
  })

  test('each time the reader comes is told', async () => {
    let taken = 0
    const queue = new KvReaderQueue(200, () => {
      taken += 1
    })
    queue.push(batch(0))
    await queue.next()
    void queue.next()
    expect(taken).toBe(2)
    queue.end()
  })
})
