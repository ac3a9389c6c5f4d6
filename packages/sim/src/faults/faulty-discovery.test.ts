import { EmbeddedDiscovery, type FleetChange, parseWorkerRecord } from '@infera/fleet'
import { expect, test } from 'vitest'
import { FaultyDiscovery } from './faulty-discovery.js'

const record = (workerId: string) =>
  parseWorkerRecord({ worker_id: workerId, url: `link://${workerId}`, model_name: 'm' })

async function watched() {
  const inner = new EmbeddedDiscovery()
  const discovery = new FaultyDiscovery(inner)
  for (const id of ['a', 'b']) await discovery.register({ kind: 'worker', record: record(id) })
  const watch = discovery.watch()[Symbol.asyncIterator]()
  const next = async () => told((await watch.next()).value)
  expect(await next()).toBe('snapshot a b')
  return { inner, discovery, next }
}

function told(change: FleetChange): string {
  if (change.type === 'entryPut')
    return `put ${change.entry.kind === 'worker' ? change.entry.record.worker_id : ''}`
  if (change.type === 'entryRemoved') return `removed ${change.id} ${change.reason}`
  return [
    'snapshot',
    ...change.entries.map((entry) => (entry.kind === 'worker' ? entry.record.worker_id : '')),
  ].join(' ')
}

test('a lost lease is told as one, and its worker comes back', async () => {
  const { discovery, next } = await watched()
  discovery.loseLease('a')
  discovery.remember('a')
  expect([await next(), await next()]).toEqual(['removed a leaseLost', 'put a'])
})

test('a worker that left while it was forgotten does not come back', async () => {
  const { inner, discovery, next } = await watched()
  discovery.forget('a')
  expect(await next()).toBe('snapshot b')
  inner.registerNow({ kind: 'worker', record: record('a') }).expire()
  await discovery.register({ kind: 'worker', record: record('c') })
  expect(await next()).toBe('put c')
  discovery.remember('a')
  await discovery.register({ kind: 'worker', record: record('d') })
  expect(await next()).toBe('put d')
})

test('a ghost stands in every snapshot until it is removed', async () => {
  const { discovery, next } = await watched()
  discovery.addGhost(record('ghost'))
  expect(await next()).toBe('put ghost')
  discovery.forget('b')
  expect(await next()).toBe('snapshot a ghost')
  discovery.removeGhost('ghost')
  expect(await next()).toBe('removed ghost leaseLost')
})

test('a stalled watch tells nothing, and then what is true', async () => {
  const { discovery, next } = await watched()
  discovery.stall()
  await discovery.register({ kind: 'worker', record: record('c') })
  const first = next()
  await new Promise((resolve) => setImmediate(resolve))
  discovery.resume()
  expect(await first).toBe('snapshot a b c')
})

test('a broken watch throws, and a new one begins with a snapshot', async () => {
  const { discovery, next } = await watched()
  const broken = next()
  discovery.break()
  await expect(broken).rejects.toMatchObject({ code: 'INFERA_SIM_INJECTED_FAULT' })
  const again = await discovery.watch()[Symbol.asyncIterator]().next()
  expect(told(again.value)).toBe('snapshot a b')
})
