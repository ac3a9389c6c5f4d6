import { EventEmitter } from 'node:events'
import { expect, test } from 'vitest'
import { VirtualClock } from '../virtual-clock.js'
import { type Ending, type WatchStream, watchKeys } from './watch-stream.js'

class FakeStream extends EventEmitter {
  readonly written: Record<string, unknown>[] = []
  isCancelled = false
  write(request: Record<string, unknown>): void {
    this.written.push(request)
  }
  cancel(): void {
    this.isCancelled = true
    // As gRPC does, some time later.
    queueMicrotask(() => this.emit('error', new Error('cancelled on client')))
  }
  say(response: Record<string, unknown>): void {
    const defaults = { created: false, canceled: false, compact_revision: '0', cancel_reason: '', events: [] }
    this.emit('data', { header: { revision: '1', cluster_id: '1' }, ...defaults, ...response })
  }
}

function start() {
  const clock = new VirtualClock()
  const stream = new FakeStream()
  const stop = new AbortController()
  const said: string[] = []
  const pings: { resolve(): void; reject(error: Error): void }[] = []
  const range = { key: Buffer.from('/w/'), range_end: Buffer.from('/w0'), start_revision: '9007199254740993' }
  const ending: Promise<Ending> = watchKeys(
    stream as unknown as WatchStream,
    range,
    { clock, requestTimeoutMs: 50, livenessMs: 1_000, pingIntervalMs: 100 },
    stop.signal,
    {
      ping: () => new Promise((resolve, reject) => pings.push({ resolve, reject })),
      onOpen: () => void said.push('open'),
      onResponse: ({ events }) => void said.push(`${events.length} events`),
    },
  )
  return { clock, stream, stop, said, pings, range, ending }
}

test('it is asked for from the exact revision, and open when etcd has taken it on', async () => {
  const { stream, said, range, stop, ending, clock } = start()
  expect(stream.written).toEqual([{ create_request: { ...range, progress_notify: true } }])
  expect(said).toEqual([])
  stream.say({ created: true })
  stream.say({ events: [{}, {}] })
  expect(said).toEqual(['open', '0 events', '2 events'])
  stop.abort()
  expect(await ending).toEqual({ reason: 'discovery was closed', isFailure: false })
  expect(clock.pendingTimers).toBe(0)
  expect(stream.isCancelled).toBe(true)
})

test.each([
  [{ canceled: true, compact_revision: '70' }, /before revision 70 was compacted/],
  [{ canceled: true, created: true, cancel_reason: 'permission denied' }, /permission denied/],
  [{ canceled: true }, /it gave no reason/],
])('etcd cancels it: %j', async (response, reason) => {
  const { stream, said, ending, clock } = start()
  stream.say(response)
  expect((await ending).reason).toMatch(reason)
  expect((await ending).isFailure).toBe(true)
  // What arrives after the end is of nobody's interest, and harmless.
  stream.say({ events: [{}] })
  stream.emit('error', new Error('late'))
  expect(said).toEqual([])
  expect(clock.pendingTimers).toBe(0)
})

test('a watch that is not taken on in time is a failure', async () => {
  const { clock, ending } = start()
  clock.advance(50)
  expect(await ending).toEqual({ reason: 'etcd took no watch on within 50 ms', isFailure: true })
})

test('while etcd says how far it is, silence is no reason to begin anew; without a word it is, and no failure', async () => {
  const { clock, stream, pings, ending } = start()
  let isOver = false
  void ending.then(() => {
    isOver = true
  })
  stream.say({ created: true })
  for (let round = 0; round < 30; round++) {
    await clock.advanceAsync(100)
    expect(stream.written.at(-1)).toEqual({ progress_request: {} })
    stream.say({ watch_id: '-1' })
    pings.at(-1)?.resolve()
    await clock.advanceAsync(0)
  }
  expect(isOver).toBe(false)
  expect(pings).toHaveLength(30)
  for (let round = 0; round < 10; round++) {
    await clock.advanceAsync(100)
    pings.at(-1)?.resolve()
  }
  expect(await ending).toEqual({ reason: 'nothing was heard for 1000 ms', isFailure: false })
  expect(clock.pendingTimers).toBe(0)
})

test('an etcd that does not answer a question is a failure, although the stream is silent as ever', async () => {
  const { clock, stream, pings, ending } = start()
  stream.say({ created: true })
  await clock.advanceAsync(100)
  pings[0]?.reject(new Error('no answer'))
  expect(await ending).toEqual({ reason: 'no answer', isFailure: true })
  expect(clock.pendingTimers).toBe(0)
})

test.each([
  ['error', 'reset'],
  ['end', 'etcd ended the watch'],
])('the %s of the stream is the end of the watch', async (event, reason) => {
  const { stream, ending } = start()
  stream.say({ created: true })
  stream.emit(event, new Error('reset'))
  expect(await ending).toEqual({ reason, isFailure: true })
})
