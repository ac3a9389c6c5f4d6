import { afterEach, describe, expect, test } from 'vitest'
import type { Discovery, FleetChange } from '../../src/index.js'
import { serverRecord } from '../support/records.js'

/** A registry, and a hand that lets workers come and go in it. */
export interface DiscoveryHarness {
  readonly discovery: Discovery
  /** Makes the worker present; the watchers know when it resolves. */
  add(workerId: string): Promise<void>
  /** Makes it absent. */
  remove(workerId: string): Promise<void>
}

/** What every `Discovery` does. Worker ids are `a:1` to `d:1`; watchers hold at most 2 changes. */
export function describeDiscovery(name: string, create: () => Promise<DiscoveryHarness>): void {
  describe(`${name} discovery`, () => {
    let harness: DiscoveryHarness | undefined
    const start = async () => {
      harness = await create()
      return harness
    }
    afterEach(() => harness?.discovery.close())

    test('a watcher sees those present first, then every change in order', async () => {
      const { discovery, add, remove } = await start()
      await add('a:1')
      const watcher = watch(discovery)
      expect(await watcher.next()).toBe('snapshot a:1')
      await add('b:1')
      expect(await watcher.next()).toBe('put b:1')
      await remove('a:1')
      await add('a:1')
      expect(await watcher.next()).toBe('removed a:1')
      expect(await watcher.next()).toBe('put a:1')
    })

    test('a change is handed to a watcher that waits for it', async () => {
      const { discovery, add } = await start()
      const watcher = watch(discovery)
      expect(await watcher.next()).toBe('snapshot ')
      const next = watcher.next()
      await add('a:1')
      expect(await next).toBe('put a:1')
    })

    test('every watcher has its own snapshot and order', async () => {
      const { discovery, add } = await start()
      const early = watch(discovery)
      expect(await early.next()).toBe('snapshot ')
      await add('a:1')
      const late = watch(discovery)
      expect(await late.next()).toBe('snapshot a:1')
      expect(await early.next()).toBe('put a:1')
    })

    test('a watcher that fell behind gets a snapshot in place of what it missed', async () => {
      const { discovery, add, remove } = await start()
      const watcher = watch(discovery)
      await watcher.next()
      for (const id of ['a:1', 'b:1', 'c:1']) await add(id)
      await remove('a:1')
      expect(await watcher.next()).toBe('snapshot b:1,c:1')
      await add('d:1')
      expect(await watcher.next()).toBe('put d:1')
    })

    test('break and abort end a watch without throwing', async () => {
      const { discovery, add } = await start()
      const controller = new AbortController()
      const aborted = watch(discovery, controller.signal)
      await aborted.next()
      const pending = aborted.next()
      controller.abort()
      expect(await pending).toBe('done')
      expect(await watch(discovery, controller.signal).next()).toBe('done')
      for await (const change of discovery.watch()) {
        expect(change.type).toBe('snapshot')
        break
      }
      await add('a:1')
      expect(await aborted.next()).toBe('done')
    })

    test('close ends every watch and every later one, and may be called twice', async () => {
      const { discovery, add } = await start()
      await add('a:1')
      const watcher = watch(discovery)
      await watcher.next()
      const pending = watcher.next()
      await Promise.all([discovery.close(), discovery.close()])
      expect(await pending).toMatch(/^done$|^removed a:1$/)
      expect(await watch(discovery).next()).toBe('done')
    })

    test('servers announce themselves, change, and leave', async () => {
      const { discovery } = await start()
      const watcher = watch(discovery)
      await watcher.next()
      const registration = await discovery.register({ kind: 'server', record: serverRecord('s') })
      expect(await watcher.next()).toBe('put s')
      await registration.update(serverRecord('s'))
      await registration.update(serverRecord('s', { version: '2' }))
      expect(await watcher.next()).toBe('put s')
      await registration.deregister()
      await registration.deregister()
      expect(await watcher.next()).toBe('removed s')
      await registration.update(serverRecord('s', { version: '3' }))
      expect(await watch(discovery).next()).toBe('snapshot ')
    })

    test('a second registration takes the first one over, which can do nothing any more', async () => {
      const { discovery } = await start()
      const first = await discovery.register({ kind: 'server', record: serverRecord('s') })
      await discovery.register({ kind: 'server', record: serverRecord('s', { version: '2' }) })
      await first.lost
      await first.update(serverRecord('s', { version: '3' }))
      await first.deregister()
      for await (const change of discovery.watch()) {
        expect(change).toEqual({
          type: 'snapshot',
          entries: [{ kind: 'server', record: serverRecord('s', { version: '2' }) }],
        })
        break
      }
    })
  })
}

/** A watch as short texts. */
function watch(discovery: Discovery, signal?: AbortSignal) {
  const iterator = discovery.watch(signal ? { signal } : {})[Symbol.asyncIterator]()
  return {
    async next(): Promise<string> {
      const step = await iterator.next()
      return step.done ? 'done' : describeChange(step.value)
    },
  }
}

function describeChange(change: FleetChange): string {
  const idOf = (entry: Extract<FleetChange, { type: 'entryPut' }>['entry']) =>
    entry.kind === 'worker' ? entry.record.worker_id : entry.record.server_id
  if (change.type === 'snapshot') return `snapshot ${change.entries.map(idOf).sort().join(',')}`
  return change.type === 'entryPut' ? `put ${idOf(change.entry)}` : `removed ${change.id}`
}
