import { EventEmitter } from 'node:events'
import type { Etcd3 } from 'etcd3'
import { expect, test } from 'vitest'
import { VirtualClock } from '../virtual-clock.js'
import { LeaseKeeper } from './lease-keeper.js'

class FakeStream extends EventEmitter {
  readonly asked: string[] = []
  isCancelled = false
  write({ ID }: { ID: string }): void {
    this.asked.push(ID)
  }
  cancel(): void {
    this.isCancelled = true
  }
  answer(id: string, ttl: string | undefined): void {
    this.emit('data', { ID: id, ...(ttl === undefined ? {} : { TTL: ttl }) })
  }
}

function start() {
  const clock = new VirtualClock()
  const streams: FakeStream[] = []
  let refusal: Error | undefined
  const leaseClient = {
    async leaseKeepAlive() {
      if (refusal) throw refusal
      const stream = new FakeStream()
      streams.push(stream)
      return stream
    },
  }
  const keeper = new LeaseKeeper({
    client: () => ({ leaseClient }) as unknown as Etcd3,
    clock,
    timeoutMs: 100,
  })
  const refuse = (error: Error | undefined) => {
    refusal = error
  }
  return { clock, streams, keeper, refuse, settle: () => clock.advanceAsync(0) }
}

test('many leases share one stream, and each is told its own time', async () => {
  const { keeper, streams, settle } = start()
  const answers = Promise.all(['1', '2', '1'].map((id) => keeper.keepAlive(id)))
  await settle()
  expect(streams).toHaveLength(1)
  expect(streams[0]?.asked).toEqual(['1', '2', '1'])
  streams[0]?.answer('2', '30')
  streams[0]?.answer('1', '10')
  streams[0]?.answer('9', '1')
  streams[0]?.answer('1', undefined)
  expect(await answers).toEqual([10, 30, 0])
})

test('a stream that does not answer is given up by all, and the next asks on another', async () => {
  const { keeper, streams, settle, clock } = start()
  const both = Promise.allSettled([keeper.keepAlive('1'), keeper.keepAlive('2')])
  await settle()
  await clock.advanceAsync(100)
  expect((await both).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  expect(streams[0]?.isCancelled).toBe(true)
  expect(clock.pendingTimers).toBe(0)
  const again = keeper.keepAlive('1')
  await settle()
  streams[1]?.answer('1', '30')
  expect(await again).toBe(30)
})

test('what a stream says after it was given up does not touch the one in its place', async () => {
  const { keeper, streams, settle } = start()
  const first = keeper.keepAlive('1').catch((error: unknown) => error)
  await settle()
  streams[0]?.emit('error', new Error('reset'))
  expect(await first).toMatchObject({ message: 'reset' })
  const second = keeper.keepAlive('1')
  await settle()
  streams[0]?.emit('error', new Error('cancelled'))
  streams[0]?.emit('end')
  streams[0]?.answer('1', '5')
  streams[1]?.answer('1', '30')
  expect(await second).toBe(30)
  const third = keeper.keepAlive('1')
  await settle()
  expect(streams).toHaveLength(2)
  streams[1]?.answer('1', '29')
  expect(await third).toBe(29)
})

test.each(['0', '-1', undefined])('a time to live of %s is that of a lease that is gone', async (ttl) => {
  const { keeper, streams, settle } = start()
  const answer = keeper.keepAlive('1')
  await settle()
  streams[0]?.answer('1', ttl)
  expect(await answer).toBe(0)
})

test.each([
  ['error', 'reset'],
  ['end', 'etcd ended the stream of keep-alives'],
])(
  'the %s of the stream is the answer to all who wait, and the next call opens another',
  async (event, reason) => {
    const { keeper, streams, settle, clock } = start()
    const all = Promise.allSettled(['1', '2', '1', '3'].map((id) => keeper.keepAlive(id)))
    await settle()
    streams[0]?.emit(event, new Error('reset'))
    for (const answer of await all) {
      expect(answer).toMatchObject({ status: 'rejected', reason: { message: reason } })
    }
    expect(clock.pendingTimers).toBe(0)
    const again = keeper.keepAlive('3')
    await settle()
    expect(streams).toHaveLength(2)
    streams[1]?.answer('3', '30')
    expect(await again).toBe(30)
  },
)

test('an answer in time leaves the limit of the others as it was', async () => {
  const { keeper, streams, settle, clock } = start()
  const slow = keeper.keepAlive('1').catch((error: unknown) => error)
  await settle()
  await clock.advanceAsync(60)
  const quick = keeper.keepAlive('2')
  await settle()
  streams[0]?.answer('2', '30')
  expect(await quick).toBe(30)
  await clock.advanceAsync(39)
  expect(streams[0]?.isCancelled).toBe(false)
  await clock.advanceAsync(1)
  expect(await slow).toMatchObject({ message: 'no answer of etcd within 100 ms' })
})

test('a stream that cannot be had is asked for again', async () => {
  const { keeper, streams, settle, refuse } = start()
  refuse(new Error('refused'))
  await expect(keeper.keepAlive('1')).rejects.toThrow('refused')
  refuse(undefined)
  const again = keeper.keepAlive('1')
  await settle()
  streams[0]?.answer('1', '30')
  expect(await again).toBe(30)
})

test('close ends what waits', async () => {
  const { keeper, streams, settle, clock } = start()
  const waiting = keeper.keepAlive('1').catch((error: unknown) => error)
  await settle()
  await keeper.close()
  expect(await waiting).toMatchObject({ message: 'discovery was closed' })
  expect(streams[0]?.isCancelled).toBe(true)
  expect(clock.pendingTimers).toBe(0)
})
