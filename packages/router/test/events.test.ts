import { VirtualClock } from '@infera/fleet'
import { expect, test } from 'vitest'
import type { Router, RouterEvent } from '../src/index.js'
import { ScriptedKvEvents, storedText } from '../src/testing/scripted-kv-events.js'
import { chat, settled, startFleet, textOf, workerRecord } from './support/fleet.js'
import { json } from './support/scripted-transport.js'

const types = [
  'workerJoined',
  'workerChanged',
  'workerLeft',
  'cacheViewChanged',
  'optionsChanged',
  'stateChanged',
] as const

function listen(router: Router): RouterEvent[] {
  const events: RouterEvent[] = []
  for (const type of types) router.events.on(type, (event) => events.push(event))
  return events
}

/** What happened since the last look, times aside. */
function take(events: RouterEvent[]): object[] {
  return events.splice(0).map(({ atMs: _, ...event }) => event)
}

test('workers that join, change and leave are told, with the reason', async () => {
  const clock = new VirtualClock()
  await using fleet = await startFleet({ clock }, [])
  const events = listen(fleet.router)
  clock.advance(7)
  const record = workerRecord('a')
  const a = await fleet.discovery.register({ kind: 'worker', record })
  await settled()
  expect(events.map(({ atMs }) => atMs)).toEqual([7])
  expect(take(events)).toEqual([
    { type: 'workerJoined', workerId: 'a', record, cacheState: 'no-event-source' },
  ])
  await a.drain()
  await settled()
  expect(take(events)).toEqual([
    { type: 'workerChanged', workerId: 'a', record: { ...record, status: 'draining' }, previous: record },
  ])
  const successor = workerRecord('a', { ext: { instance_id: 'other' } })
  const b = fleet.discovery.registerNow({ kind: 'worker', record: successor })
  await settled()
  expect(take(events)).toEqual([
    { type: 'workerLeft', workerId: 'a', reason: 'replaced' },
    { type: 'workerJoined', workerId: 'a', record: successor, cacheState: 'no-event-source' },
  ])
  b.expire()
  await settled()
  expect(take(events)).toEqual([{ type: 'workerLeft', workerId: 'a', reason: 'leaseLost' }])
  const c = await fleet.discovery.register({ kind: 'worker', record: workerRecord('c') })
  await c.deregister()
  await settled()
  expect(take(events).at(-1)).toEqual({ type: 'workerLeft', workerId: 'c', reason: 'deregistered' })
})

test('what is known of a cache is told when it changes kind', async () => {
  const clock = new VirtualClock()
  const kvEvents = new ScriptedKvEvents()
  await using fleet = await startFleet({ clock, kvEvents: [kvEvents] }, [workerRecord('a')])
  const events = listen(fleet.router)
  const changed = (previous: string, state: string) => ({
    type: 'cacheViewChanged',
    workerId: 'a',
    previous,
    state,
  })
  kvEvents.of('a').snapshot(0, [storedText('abcd', 4)])
  kvEvents.of('a').batch(1, [storedText('efgh', 4, 2)])
  await settled()
  expect(take(events)).toEqual([changed('waiting', 'live')])
  for (const sequence of [2, 3, 4]) {
    kvEvents.of('a').send({ type: 'batch', rank: 0, sequence, payload: Uint8Array.of(0xc1) })
    await settled()
    await clock.advanceAsync(5_000)
    if (sequence < 4) kvEvents.of('a').snapshot(sequence, [])
    await settled()
  }
  const lostAndFound = [changed('live', 'waiting'), changed('waiting', 'live')]
  expect(take(events)).toEqual([...lostAndFound, ...lostAndFound, changed('live', 'degraded')])
  kvEvents.of('a').batch(5, [storedText('ijkl', 4, 3)])
  await settled()
  expect(take(events)).toEqual([changed('degraded', 'waiting')])
  await clock.advanceAsync(5_000)
  kvEvents.of('a').snapshot(5, [])
  await settled()
  expect(take(events)).toEqual([changed('waiting', 'live')])
  kvEvents.of('a').snapshot(9, [])
  await settled()
  expect(take(events)).toEqual([]) // a short snapshot takes no time
  kvEvents.of('a').end()
  await settled()
  expect(take(events)).toEqual([changed('live', 'waiting')])
})

test('of a worker that has left nothing more is told', async () => {
  const kvEvents = new ScriptedKvEvents()
  await using fleet = await startFleet({ kvEvents: [kvEvents] }, [workerRecord('a')])
  kvEvents.of('a').snapshot(0, [])
  await settled()
  const events = listen(fleet.router)
  await fleet.registrations.get('a')?.deregister()
  await settled()
  expect(take(events)).toEqual([{ type: 'workerLeft', workerId: 'a', reason: 'deregistered' }])
})

test('options and states are told, and closing takes no worker away', async () => {
  await using fleet = await startFleet()
  const events = listen(fleet.router)
  fleet.router.update({ overlapWeight: 1 }) // as it is
  fleet.router.update({ overlapWeight: 2, requestRetriesMax: 2, policy: 'round-robin' })
  await settled()
  expect(take(events)).toEqual([{ type: 'optionsChanged', names: ['overlapWeight', 'policy'] }])
  await fleet.router.close()
  await fleet.router.destroy()
  await settled()
  expect(take(events)).toEqual([
    { type: 'stateChanged', previous: 'open', state: 'draining' },
    { type: 'stateChanged', previous: 'draining', state: 'closed' },
  ])
})

test('listeners that throw are logged, and requests, other listeners and the fleet go on', async () => {
  const faults: Readonly<Record<string, unknown>>[] = []
  const quiet = () => {}
  const error = (fields: Readonly<Record<string, unknown>>) => faults.push(fields)
  await using fleet = await startFleet({ logger: { debug: quiet, info: quiet, warn: quiet, error } })
  fleet.router.events.on('workerJoined', () => {
    throw new Error('a fault of the listener')
  })
  const events = listen(fleet.router)
  await fleet.discovery.register({ kind: 'worker', record: workerRecord('d') })
  await settled()
  expect(take(events)).toMatchObject([{ type: 'workerJoined', workerId: 'd' }])
  expect(faults).toEqual([
    { event: 'workerJoined', error: expect.stringContaining('a fault of the listener') },
  ])
  fleet.transport.script('*', () => json({}))
  expect(await textOf((await fleet.router.dispatch(chat())).body)).toBe('{}')
})

test('a listener may close the router that tells it', async () => {
  await using fleet = await startFleet({}, [])
  const closed = new Promise<void>((resolve) => {
    fleet.router.events.once('workerJoined', () => {
      fleet.router.destroy().then(resolve, () => {})
    })
  })
  await fleet.discovery.register({ kind: 'worker', record: workerRecord('a') })
  await closed
  expect([fleet.router.state, fleet.router.workers()]).toEqual(['closed', []])
})
