import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { EtcdDiscovery } from '../../src/etcd/index.js'
import { EtcdServer, etcdMissing } from '../support/etcd-server.js'
import { Follower } from '../support/follower.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { until } from '../support/wait.js'
import { discoveryOn, worker } from './fleet.js'

const key = '/infera/workers/a:1'

describe.skipIf(etcdMissing)('one id in two hands', () => {
  let etcd: EtcdServer
  const cleanups: (() => PromiseLike<unknown>)[] = []
  beforeAll(async () => {
    etcd = await EtcdServer.start()
  })
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
    await etcd.ctl('del', '', '--prefix')
  })
  afterAll(async () => etcd?.[Symbol.asyncDispose]())

  function discover(more: Parameters<typeof discoveryOn>[1] = {}, url: string = etcd.url): EtcdDiscovery {
    const discovery = discoveryOn(url, { deregisterTimeoutMs: 500, ...more })
    cleanups.push(() => discovery.close())
    return discovery
  }
  const note = async () => JSON.parse(await etcd.ctl('get', key, '--print-value-only')).note
  const leases = async () => (await etcd.ctl('lease', 'list')).trim().split('\n').slice(1)

  test('taken over in one process the worker never leaves the pool, and one lease is left', async () => {
    const discovery = discover()
    const follower = new Follower(discovery)
    await follower.sees('')
    const first = await discovery.register(worker('a:1', { note: 1 }))
    for (let turn = 2; turn <= 5; turn++) await discovery.register(worker('a:1', { note: turn }))
    await first.lost
    const seen = () => follower.known.get('worker a:1')?.record as { note?: number } | undefined
    await until(() => seen()?.note === 5)
    expect(follower.changes).toEqual(['snapshot', 'put a:1', 'put a:1', 'put a:1', 'put a:1', 'put a:1'])
    while ((await leases()).length !== 1) await new Promise((resolve) => setImmediate(resolve))
    expect(await note()).toBe(5)
    expect(follower.pool).toBe('a:1')
  })

  test('several at once end as one: the last', async () => {
    const discovery = discover()
    const follower = new Follower(discovery)
    await follower.sees('')
    const all = await Promise.all(
      [1, 2, 3, 4].map((turn) => discovery.register(worker('a:1', { note: turn }))),
    )
    await Promise.all(all.slice(0, 3).map(({ lost }) => lost))
    expect(await note()).toBe(4)
    await all[3]?.deregister()
    await follower.sees('')
    for (const each of all) await each.update(worker('a:1', { note: 'late' }).record)
    expect(await etcd.ctl('get', key)).toBe('')
  })

  test('taken over by another process, the first takes its own lease away and nothing else', async () => {
    const [one, other] = [discover(), discover()]
    const follower = new Follower(discover())
    const first = await one.register(worker('a:1', { note: 1 }))
    await follower.sees('a:1')
    await other.register(worker('a:1', { note: 2 }))
    await first.lost
    while ((await leases()).length !== 1) await new Promise((resolve) => setImmediate(resolve))
    await first.drain()
    await first.deregister()
    await one.close()
    expect(await note()).toBe(2)
    expect(follower.changes.filter((change) => change.startsWith('removed'))).toEqual([])
  })

  test('a start that is given up half-way through a takeover leaves nobody behind', async () => {
    const proxy = await TcpProxy.start(etcd.port)
    cleanups.push(() => proxy[Symbol.asyncDispose]())
    const discovery = discover(
      { leaseTtlSeconds: 1, requestTimeoutMs: 200 },
      `http://127.0.0.1:${proxy.port}`,
    )
    const first = await discovery.register(worker('a:1', { note: 1 }))
    const follower = new Follower(discover())
    await follower.sees('a:1')
    proxy.hold()
    const stop = new AbortController()
    const second = discovery.register(worker('a:1', { note: 2 }), { signal: stop.signal })
    await first.lost
    stop.abort(new Error('never mind'))
    await expect(second).rejects.toThrow('never mind')
    proxy.mend()
    await follower.sees('')
  })
})
