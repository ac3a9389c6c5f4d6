import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BoundedQueue } from './bounded-queue.js'

describe('BoundedQueue', () => {
  test('hands out what was pushed, in order, to a reader that waits and to one that comes later', async () => {
    const queue = new BoundedQueue<string>(10)
    const waiting = queue.next()
    queue.push('a', 1)
    queue.push('b', 1)
    queue.end()
    expect(await waiting).toEqual({ value: 'a', done: false })
    expect(await queue.next()).toEqual({ value: 'b', done: false })
    expect(await queue.next()).toEqual({ value: undefined, done: true })
  })

  test('says no beyond its bound and holds nothing of it', async () => {
    const queue = new BoundedQueue<string>(10)
    expect(queue.push('a', 6)).toBe(true)
    expect(queue.push('b', 5)).toBe(false)
    expect(queue.push('c', 4)).toBe(true)
    expect(queue.heldBytes).toBe(10)
    await queue.next()
    expect(queue.push('d', 6)).toBe(true)
    expect((await queue.next()).value).toBe('c')
  })

  test('throws a failure once, after what came before it, and is at its end then', async () => {
    const queue = new BoundedQueue<string>(10)
    queue.push('a', 1)
    queue.fail(new Error('broken'))
    queue.push('late', 1)
    expect((await queue.next()).value).toBe('a')
    await expect(queue.next()).rejects.toThrow('broken')
    expect((await queue.next()).done).toBe(true)
  })

  test('rejects a reader that waits when it fails', async () => {
    const queue = new BoundedQueue<string>(10)
    const waiting = queue.next()
    queue.fail(new Error('broken'))
    await expect(waiting).rejects.toThrow('broken')
    expect((await queue.next()).done).toBe(true)
  })

  test('tells once that its reader left, and not after the end', async () => {
    let left = 0
    const queue = new BoundedQueue<string>(10, { onReturn: () => left++ })
    queue.push('a', 1)
    for await (const _item of queue) break
    await queue.return()
    expect(left).toBe(1)
    expect(queue.heldBytes).toBe(0)
    const ended = new BoundedQueue<string>(10, { onReturn: () => left++ })
    ended.end()
    for await (const _item of ended) break
    await ended.return()
    expect(left).toBe(1)
  })

  test('whatever way an item leaves, its size is released once', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.constantFrom('push', 'push', 'next', 'clear', 'end', 'return'), { maxLength: 50 }),
        async (steps) => {
          let releasedBytes = 0
          let pushedBytes = 0
          const queue = new BoundedQueue<number>(100, {
            onRelease: (sizeBytes) => {
              releasedBytes += sizeBytes
            },
          })
          const reads: Promise<unknown>[] = []
          for (const [index, step] of steps.entries()) {
            if (step === 'push' && queue.push(index, index + 1)) pushedBytes += index + 1
            if (step === 'next' && !queue.isAwaited) reads.push(queue.next())
            if (step === 'clear') queue.clear()
            if (step === 'end') queue.end()
            if (step === 'return') await queue.return()
            expect(releasedBytes + queue.heldBytes).toBe(pushedBytes)
          }
          await queue.return()
          await Promise.all(reads)
          expect(releasedBytes).toBe(pushedBytes)
        },
      ),
    )
  })

  test('behaves as a plain array with a sum', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(fc.record({ push: fc.nat(40) }), fc.constant('next' as const)), { maxLength: 200 }),
        async (steps) => {
          const queue = new BoundedQueue<number>(100)
          let model: number[] = []
          for (const step of steps) {
            const held = model.reduce((sum, size) => sum + size, 0)
            if (step === 'next') {
              const [first, ...rest] = model
              if (first === undefined) continue
              expect((await queue.next()).value).toBe(first)
              model = rest
            } else {
              expect(queue.push(step.push, step.push)).toBe(held + step.push <= 100)
              if (held + step.push <= 100) model.push(step.push)
            }
            expect(queue.heldBytes).toBe(model.reduce((sum, size) => sum + size, 0))
          }
        },
      ),
    )
  })
})
