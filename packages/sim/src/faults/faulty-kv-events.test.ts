import { type KvEventMessage, type KvEventTransport, parseWorkerRecord } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { faultKind } from './fault-kinds.js'
import type { FaultTarget } from './fault-target.js'
import { FaultyKvEvents } from './faulty-kv-events.js'

const worker = parseWorkerRecord({ worker_id: 'w', url: 'link://w', model_name: 'm' })
const payload = new Uint8Array()
const batches = (from: number, to: number): KvEventMessage[] =>
  Array.from({ length: to - from + 1 }, (_, index) => ({
    type: 'batch',
    rank: 0,
    sequence: from + index,
    payload,
  }))
const snapshot = (sequence: number): KvEventMessage => ({ type: 'snapshot', rank: 0, sequence, payloads: [] })

/** What comes through of these messages, as `s` for snapshots and the number of batches. */
async function through(messages: KvEventMessage[], kind: string, parameters: Record<string, number>) {
  const inner: KvEventTransport = {
    kind: 'test',
    serves: () => true,
    subscribe: () => ({
      async *[Symbol.asyncIterator]() {
        yield* messages
      },
    }),
  }
  const kvEvents = new FaultyKvEvents(inner)
  faultKind(kind)?.begin({ kvEvents, workerId: 'w' } as unknown as FaultTarget, parameters)
  const seen: string[] = []
  for await (const message of kvEvents.subscribe(worker)) {
    seen.push(message.type === 'snapshot' ? `s${message.sequence}` : String(message.sequence))
  }
  expect(kvEvents.subscriptionCount).toBe(0)
  return seen.join(' ')
}

describe('faults of events', () => {
  test.each([
    ['eventsLost', { batches: 2 }, 's-1 2 3'],
    ['eventsLostUnseen', { batches: 2 }, 's-1 0 1'],
    ['eventsDuplicate', { lag: 0 }, 's-1 0 0 1 1 2 2 3 3'],
    ['eventsDuplicate', { lag: 2 }, 's-1 0 1 2 0 3 1'],
    ['eventsReorder', { count: 1 }, 's-1 1 0 2 3'],
  ])('%s with %j', async (kind, parameters, seen) => {
    expect(await through([snapshot(-1), ...batches(0, 3)], kind, parameters)).toBe(seen)
  })

  test('a snapshot ends the renumbering, for it tells the true number', async () => {
    const messages = [snapshot(-1), ...batches(0, 2), snapshot(2), ...batches(3, 4)]
    expect(await through(messages, 'eventsLostUnseen', { batches: 1 })).toBe('s-1 0 1 s2 3 4')
  })

  test('a break ends what is subscribed to with an error, and new subscriptions until it is mended', async () => {
    const kvEvents = new FaultyKvEvents({
      kind: 'test',
      serves: () => true,
      subscribe: (_worker, { signal } = {}) => ({
        async *[Symbol.asyncIterator]() {
          await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()))
        },
      }),
    })
    const waiting = kvEvents.subscribe(worker)[Symbol.asyncIterator]().next()
    kvEvents.break('w', true)
    await expect(waiting).rejects.toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
    await expect(kvEvents.subscribe(worker)[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      code: 'INFERA_FLEET_BROKEN',
    })
    kvEvents.mend('w')
    const stop = new AbortController()
    const next = kvEvents.subscribe(worker, { signal: stop.signal })[Symbol.asyncIterator]().next()
    stop.abort()
    expect((await next).done).toBe(true)
    expect(kvEvents.subscriptionCount).toBe(0)
  })
})
