import { describe, expect, test } from 'vitest'
import type { FleetChange } from '../ports/discovery.js'
import { parseWorkerRecord } from '../records/worker-record.js'
import { EmbeddedDiscovery } from './embedded-discovery.js'

const worker = (id: string, more: Record<string, unknown> = {}) => ({
  kind: 'worker' as const,
  record: parseWorkerRecord({ worker_id: id, url: `http://${id}`, model_name: 'm', ...more }),
})

describe('EmbeddedDiscovery', () => {
  test('an expired registration leaves as leaseLost and its owner learns of it', async () => {
    const discovery = new EmbeddedDiscovery()
    const next = await watch(discovery)
    const registration = await discovery.register(worker('a:1'))
    await next()
    registration.expire()
    registration.expire()
    await registration.lost
    expect(await next()).toEqual({ type: 'entryRemoved', kind: 'worker', id: 'a:1', reason: 'leaseLost' })
    await registration.drain()
    await discovery.register(worker('b:1'))
    expect(await next()).toMatchObject({ type: 'entryPut', entry: { record: { worker_id: 'b:1' } } })
  })

  test('a drained worker is put once as draining, and leaves as deregistered', async () => {
    const discovery = new EmbeddedDiscovery()
    const next = await watch(discovery)
    const registration = await discovery.register(worker('a:1'))
    await next()
    await registration.drain()
    await registration.drain()
    await registration.deregister()
    expect(await next()).toMatchObject({ type: 'entryPut', entry: { record: { status: 'draining' } } })
    expect(await next()).toMatchObject({ type: 'entryRemoved', reason: 'deregistered' })
  })

  test('a take-over is announced, and what the first owner does afterwards is not', async () => {
    const discovery = new EmbeddedDiscovery()
    const next = await watch(discovery)
    const first = await discovery.register(worker('a:1', { run: 1 }))
    const second = await discovery.register(worker('a:1', { run: 2 }))
    await first.lost
    first.expire()
    await first.drain()
    expect(await next()).toMatchObject({ entry: { record: { run: 1 } } })
    expect(await next()).toMatchObject({ entry: { record: { run: 2 } } })
    await second.deregister()
    expect(await next()).toMatchObject({ type: 'entryRemoved', reason: 'deregistered' })
  })

  test('unknown keys of a record are kept', async () => {
    const discovery = new EmbeddedDiscovery()
    await discovery.register(worker('a:1', { ext: { instance_id: 'i', more: 1 }, other: [2] }))
    expect(await (await watch(discovery, false))()).toMatchObject({
      entries: [{ record: { ext: { instance_id: 'i', more: 1 }, other: [2] } }],
    })
  })

  test('a registration keeps its id', async () => {
    const discovery = new EmbeddedDiscovery()
    const registration = await discovery.register(worker('a:1'))
    await expect(registration.update(worker('b:1').record)).rejects.toMatchObject({
      code: 'INFERA_FLEET_INVALID_OPTIONS',
    })
  })

  test('records beyond the bound are refused, but a known one may be replaced', async () => {
    const discovery = new EmbeddedDiscovery({ entriesMax: 1 })
    await discovery.register(worker('a:1'))
    await expect(discovery.register(worker('b:1'))).rejects.toMatchObject({ code: 'INFERA_FLEET_FULL' })
    await discovery.register(worker('a:1'))
  })

  test('an unusable record and an aborted signal register nothing', async () => {
    const discovery = new EmbeddedDiscovery()
    const unusable = { kind: 'worker' as const, record: { ...worker('a:1').record, model_name: '' } }
    await expect(discovery.register(unusable)).rejects.toMatchObject({ code: 'INFERA_FLEET_INVALID_RECORD' })
    const signal = AbortSignal.abort(new Error('no more'))
    await expect(discovery.register(worker('a:1'), { signal })).rejects.toThrow('no more')
    expect(await (await watch(discovery, false))()).toEqual({ type: 'snapshot', entries: [] })
  })

  test('close takes registrations away and refuses further ones', async () => {
    const discovery = new EmbeddedDiscovery()
    await discovery.register(worker('a:1'))
    await discovery.close()
    await expect(discovery.register(worker('a:1'))).rejects.toMatchObject({ code: 'INFERA_FLEET_CLOSED' })
  })

  test('a misspelt option is an error', () => {
    expect(() => new EmbeddedDiscovery({ entryMax: 1 } as never)).toThrow(/EmbeddedDiscovery.*entryMax/)
  })
})

/** A watcher that has read its first snapshot, unless told. */
async function watch(discovery: EmbeddedDiscovery, skipsSnapshot = true) {
  const iterator = discovery.watch()[Symbol.asyncIterator]()
  const next = async (): Promise<FleetChange | undefined> => {
    const step = await iterator.next()
    return step.done ? undefined : step.value
  }
  if (skipsSnapshot) await next()
  return next
}
