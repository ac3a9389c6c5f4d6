import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { EtcdDiscovery, EtcdStatus } from '../../src/etcd/index.js'
import { EtcdServer, etcdMissing } from '../support/etcd-server.js'
import { Follower } from '../support/follower.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { until } from '../support/wait.js'
import { discoveryOn, wireRecord, worker } from './fleet.js'

describe.skipIf(etcdMissing)('outages of etcd', () => {
  let etcd: EtcdServer
  const open: EtcdDiscovery[] = []
  const cleanups: (() => PromiseLike<unknown>)[] = []
  beforeEach(async () => {
    etcd = await EtcdServer.start()
  })
  afterEach(async () => {
    etcd.resume()
    await Promise.all(open.splice(0).map((each) => each.close()))
    for (const cleanup of cleanups.splice(0)) await cleanup()
    await etcd[Symbol.asyncDispose]()
  })

  function discover(more: Parameters<typeof discoveryOn>[1] = {}, url: string = etcd.url): EtcdDiscovery {
    const discovery = discoveryOn(url, { deregisterTimeoutMs: 500, ...more })
    open.push(discovery)
    return discovery
  }

  async function through(): Promise<{ proxy: TcpProxy; url: string }> {
    const proxy = await TcpProxy.start(etcd.port)
    cleanups.push(() => proxy[Symbol.asyncDispose]())
    return { proxy, url: `http://127.0.0.1:${proxy.port}` }
  }

  const put = (id: string, more: Record<string, unknown> = {}) =>
    etcd.ctl('put', `/infera/workers/${id}`, JSON.stringify({ ...wireRecord(id), ...more }))
  const remove = (id: string) => etcd.ctl('del', `/infera/workers/${id}`)
  const keys = async () =>
    (await etcd.ctl('get', '/infera/workers/', '--prefix', '--keys-only'))
      .split('\n')
      .filter(Boolean)
      .map((key) => key.slice('/infera/workers/'.length))
  async function eventually(condition: () => Promise<boolean>): Promise<void> {
    while (!(await condition())) await new Promise((resolve) => setImmediate(resolve))
  }

  /** Changes that nobody is told of while they happen, and what a diff says of them, in any order. */
  async function changeBehindTheirBack(): Promise<void> {
    await remove('a:1')
    await put('e:1')
    await put('b:1', { status: 'draining' })
    await put('c:1', { kv_block_size: 64 })
  }
  const difference = ['put b:1(draining)', 'put c:1', 'put e:1', 'removed a:1 leaseLost']
  const before = 'a:1 b:1 c:1 d:1'
  const after = 'b:1(draining) c:1 d:1 e:1'
  async function addAll(): Promise<void> {
    for (const id of before.split(' ')) await put(id)
  }

  test('a cut watch is made good by a list, and watchers are told the difference', async () => {
    const { proxy, url } = await through()
    await addAll()
    const discovery = discover({}, url)
    const follower = new Follower(discovery)
    await follower.sees(before)
    await until(() => discovery.isLive)
    proxy.cut()
    await until(() => !discovery.isLive)
    expect(follower.pool).toBe(before)
    await changeBehindTheirBack()
    proxy.mend()
    await follower.sees(after)
    expect(follower.changes.slice(1).sort()).toEqual(difference)
    await until(() => discovery.isLive)
  })

  test('so is one that is compacted away meanwhile', async () => {
    const { proxy, url } = await through()
    await addAll()
    const discovery = discover({}, url)
    const follower = new Follower(discovery)
    await follower.sees(before)
    await until(() => discovery.isLive)
    proxy.cut()
    await until(() => !discovery.isLive)
    await changeBehindTheirBack()
    const { json } = await etcd.gateway('kv/range', { key: 'AA==' })
    await etcd.ctl('compact', (json.header as { revision: string }).revision)
    proxy.mend()
    await follower.sees(after)
    expect(follower.changes.slice(1).sort()).toEqual(difference)
  })

  test('a wire that passes nothing on is noticed without an error of it', async () => {
    const { proxy, url } = await through()
    await addAll()
    const discovery = discover({ requestTimeoutMs: 300 }, url)
    const follower = new Follower(discovery)
    await follower.sees(before)
    await until(() => discovery.isLive)
    proxy.hold()
    await until(() => discovery.status.state === 'failing')
    await changeBehindTheirBack()
    proxy.cut()
    proxy.mend()
    await follower.sees(after)
    expect(follower.changes.slice(1).sort()).toEqual(difference)
  })

  test('a watch that says nothing for too long is begun anew', async () => {
    await addAll()
    const states: string[] = []
    // Not asked meanwhile, etcd has nothing to say.
    const onStatus = ({ state }: EtcdStatus) => states.push(state)
    const discovery = discover({ livenessMs: 100, pingIntervalMs: 600_000, onStatus })
    const follower = new Follower(discovery)
    await follower.sees(before)
    await until(() => states.filter((state) => state === 'live').length >= 3)
    expect(follower.changes).toEqual([`snapshot ${before}`])
    expect(states).not.toContain('failing')
    await put('e:1')
    await follower.sees(`${before} e:1`)
  })

  test('an etcd that is killed takes nobody away, and back with its data nobody is told anything', async () => {
    const discovery = discover()
    const owner = discover()
    for (const id of ['a:1', 'b:1']) await owner.register(worker(id))
    const follower = new Follower(discovery)
    await follower.sees('a:1 b:1')
    await until(() => discovery.isLive)
    await etcd.kill()
    await until(() => discovery.status.failureCount > 2)
    expect(discovery.status).toMatchObject({ state: 'failing', isListed: true })
    const late = new Follower(discovery)
    await late.sees('a:1 b:1')
    await etcd.restart()
    await until(() => discovery.isLive)
    await owner.register(worker('c:1'))
    await follower.sees('a:1 b:1 c:1')
    expect(follower.changes).toEqual(['snapshot a:1 b:1', 'put c:1'])
    expect((await keys()).sort()).toEqual(['a:1', 'b:1', 'c:1'])
  })

  test('one that lost its data is given its records again by their owners, and the pool never empties', async () => {
    const discovery = discover({ dataLossGraceMs: 10_000 })
    const owner = discover()
    const gone = await discover().register(worker('gone:1'))
    for (const id of ['a:1', 'b:1', 'c:1']) await owner.register(worker(id))
    const follower = new Follower(discovery)
    await follower.sees('a:1 b:1 c:1 gone:1')
    await until(() => discovery.isLive)
    const states: string[] = []
    const watching = (async () => {
      for await (const change of discovery.watch()) {
        if (change.type === 'entryRemoved') states.push(change.id)
      }
    })()
    await etcd.kill()
    etcd.loseData()
    await gone.deregister()
    await etcd.restart()
    await eventually(async () => (await keys()).length === 3)
    await until(() => discovery.isLive)
    expect(states.filter((id) => id !== 'gone:1')).toEqual([])
    expect(follower.pool).toMatch(/^a:1 b:1 c:1/)
    await discovery.close()
    await watching
  })

  test('records that nobody puts again after a loss of data leave when their grace is over', async () => {
    await addAll()
    const discovery = discover({ dataLossGraceMs: 300 })
    const owner = discover()
    await owner.register(worker('z:1'))
    const follower = new Follower(discovery)
    await follower.sees(`${before} z:1`)
    await until(() => discovery.isLive)
    await etcd.kill()
    etcd.loseData()
    await etcd.restart()
    await follower.sees('z:1')
    expect(follower.changes.filter((change) => change.startsWith('removed')).sort()).toEqual(
      ['a:1', 'b:1', 'c:1', 'd:1'].map((id) => `removed ${id} leaseLost`),
    )
  })

  test('an etcd that is away at the start is no failure: the pool is empty until it comes', async () => {
    await etcd.kill()
    const discovery = discover()
    const follower = new Follower(discovery)
    await follower.sees('')
    expect(discovery.status).toMatchObject({ state: 'failing', isListed: false })
    const registering = discovery.register(worker('a:1'))
    await etcd.restart()
    await registering
    await follower.sees('a:1')
    expect(discovery.isLive).toBe(true)
  })

  test('a lease that is revoked from outside is taken anew, with the record as it is now', async () => {
    const owner = discover()
    const registration = await owner.register(worker('a:1'))
    await registration.drain()
    const follower = new Follower(discover())
    await follower.sees('a:1(draining)')
    const leases = async () => (await etcd.ctl('lease', 'list')).split('\n').slice(1).filter(Boolean)
    const [lease] = await leases()
    await etcd.ctl('lease', 'revoke', lease as string)
    await until(() => follower.changes.length >= 3)
    await follower.sees('a:1(draining)')
    expect(follower.changes).toEqual([
      'snapshot a:1(draining)',
      'removed a:1 deregistered',
      'put a:1(draining)',
    ])
    expect(await leases()).toHaveLength(1)
  })

  test('a worker that was cut off for longer than its lease is out, and in again when it is back, once', async () => {
    const { proxy, url } = await through()
    const owner = discover({ leaseTtlSeconds: 1, heartbeatMs: 50, requestTimeoutMs: 300 }, url)
    const registration = await owner.register(worker('a:1'))
    const follower = new Follower(discover())
    await follower.sees('a:1')
    proxy.cut()
    await follower.sees('')
    proxy.mend()
    await follower.sees('a:1')
    expect(await keys()).toEqual(['a:1'])
    await registration.deregister()
    await follower.sees('')
  })

  test('a paused etcd outlasts its leases, and all are there when it goes on', async () => {
    const owner = discover({ leaseTtlSeconds: 1, heartbeatMs: 100, requestTimeoutMs: 400 })
    for (const id of ['a:1', 'b:1']) await owner.register(worker(id))
    const discovery = discover({ requestTimeoutMs: 400 })
    const follower = new Follower(discovery)
    await follower.sees('a:1 b:1')
    await until(() => discovery.isLive)
    etcd.pause()
    await until(() => discovery.status.failureCount >= 3)
    expect(follower.pool).toBe('a:1 b:1')
    etcd.resume()
    await until(() => discovery.isLive)
    await eventually(async () => (await keys()).length === 2)
    await follower.sees('a:1 b:1')
    // Whatever happened in between, nobody stands there twice.
    expect((await keys()).sort()).toEqual(['a:1', 'b:1'])
  })

  test('an owner that is cut off while another takes its id leaves it to that one', async () => {
    const { proxy, url } = await through()
    const owner = discover({ leaseTtlSeconds: 1, heartbeatMs: 50, requestTimeoutMs: 300 }, url)
    const registration = await owner.register(worker('a:1', { note: 'old' }))
    proxy.cut()
    const other = discover()
    await other.register(worker('a:1', { note: 'new' }))
    proxy.mend()
    await registration.lost
    expect(JSON.parse((await etcd.ctl('get', '/infera/workers/a:1', '--print-value-only')).trim()).note).toBe(
      'new',
    )
  })

  test('what cannot be taken away is told, in time, and goes with its lease', async () => {
    const { proxy, url } = await through()
    const lines: string[] = []
    const say = () => {}
    const logger = { debug: say, info: say, error: say, warn: (_: unknown, text: string) => lines.push(text) }
    const owner = discover({ leaseTtlSeconds: 1, deregisterTimeoutMs: 100, logger }, url)
    const registration = await owner.register(worker('a:1'))
    const follower = new Follower(discover())
    await follower.sees('a:1')
    proxy.cut()
    await registration.deregister()
    expect(lines).toContain('record could not be taken away: it stays until its lease has run out')
    await follower.sees('')
  })

  test('a registration that is given up while etcd is away announces nothing, and a closed discovery takes none', async () => {
    await etcd.kill()
    const discovery = discover()
    const controller = new AbortController()
    const registering = discovery.register(worker('a:1'), { signal: controller.signal })
    controller.abort(new Error('never mind'))
    await expect(registering).rejects.toThrow('never mind')
    const waiting = discovery.register(worker('b:1'))
    const closing = discovery.close()
    await expect(waiting).rejects.toMatchObject({ code: 'INFERA_FLEET_CLOSED' })
    await closing
    await expect(discovery.register(worker('c:1'))).rejects.toMatchObject({ code: 'INFERA_FLEET_CLOSED' })
    await etcd.restart()
    expect(await keys()).toEqual([])
  })

  test('with several endpoints one that is dead is passed over', async () => {
    const { proxy, url } = await through()
    proxy.cut()
    const discovery = discover({ endpoints: [url, etcd.url] })
    await discovery.register(worker('a:1'))
    const follower = new Follower(discovery)
    await follower.sees('a:1')
  })

  test('a record that cannot be taken away at once is taken away as soon as etcd answers again', async () => {
    const { proxy, url } = await through()
    const owner = discover({ leaseTtlSeconds: 3_600, deregisterTimeoutMs: 30_000 }, url)
    const registration = await owner.register(worker('a:1'))
    proxy.cut()
    await until(() => proxy.refused > 0)
    const leaving = registration.deregister()
    const refused = proxy.refused
    await until(() => proxy.refused > refused)
    proxy.mend()
    await leaving
    expect(await keys()).toEqual([])
  })

  test('an etcd that came back empty and was written to by others is known for what it is', async () => {
    const { proxy, url } = await through()
    const owner = discover({}, url)
    for (const id of ['a:1', 'b:1']) await owner.register(worker(id))
    const discovery = discover({ dataLossGraceMs: 20_000 }, url)
    const follower = new Follower(discovery)
    await follower.sees('a:1 b:1')
    await until(() => discovery.isLive)
    proxy.cut()
    await etcd.kill()
    etcd.loseData()
    await etcd.restart()
    // Its revisions pass all that the old one ever had.
    for (let count = 0; count < 20; count++) await etcd.ctl('put', '/other', String(count))
    await put('c:1')
    proxy.mend()
    await follower.sees('a:1 b:1 c:1')
    await eventually(async () => (await keys()).length === 3)
    await until(() => discovery.isLive)
    await put('d:1')
    await follower.sees('a:1 b:1 c:1 d:1')
    expect(follower.changes.filter((change) => change.startsWith('removed'))).toEqual([])
  })

  test('a watcher alone that is cut off keeps its word, and others see what happens', async () => {
    const { proxy, url } = await through()
    const owner = discover()
    const registration = await owner.register(worker('a:1'))
    const [cutOff, other] = [discover({}, url), discover()]
    const [first, second] = [new Follower(cutOff), new Follower(other)]
    await Promise.all([first.sees('a:1'), second.sees('a:1')])
    await until(() => cutOff.isLive)
    proxy.hold()
    await registration.drain()
    await second.sees('a:1(draining)')
    await until(() => cutOff.status.state === 'failing')
    expect(first.pool).toBe('a:1')
    await registration.deregister()
    await second.sees('')
    proxy.cut()
    proxy.mend()
    await first.sees('')
    expect(other.status.failureCount).toBe(0)
  })
})
