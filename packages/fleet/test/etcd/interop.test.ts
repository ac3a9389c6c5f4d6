import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { EtcdDiscovery } from '../../src/etcd/index.js'
import { EtcdServer, etcdMissing } from '../support/etcd-server.js'
import { Follower } from '../support/follower.js'
import { serverRecord } from '../support/records.js'
import { until } from '../support/wait.js'
import { discoveryOn, wireRecord, worker } from './fleet.js'

const base64 = (text: string) => Buffer.from(text).toString('base64')
const utf8 = (encoded: unknown) => Buffer.from(String(encoded), 'base64').toString('utf8')

/** The record of fleet.md 2 as a worker of Infera 0.1 puts it. */
const reference =
  '{"worker_id":"10.0.0.1:8080","url":"http://10.0.0.1:8080","model_name":"Qwen3-8B","engine":"vllm","disagg_mode":"mixed","disagg_meta":{},"kv_events_endpoint":"tcp://10.0.0.1:5557","kv_block_size":16,"dp_rank":null,"dp_size":null,"request_transport":"http"}'

describe.skipIf(etcdMissing)('in one etcd with Infera 0.1', () => {
  let etcd: EtcdServer
  const open: EtcdDiscovery[] = []
  beforeAll(async () => {
    etcd = await EtcdServer.start()
  })
  afterEach(async () => {
    for (const each of open.splice(0)) await each.close()
    await etcd.ctl('del', '', '--prefix')
  })
  afterAll(async () => etcd?.[Symbol.asyncDispose]())
  const discover = (...[more]: Parameters<typeof discoveryOn> extends [string, ...infer R] ? R : never) => {
    const discovery = discoveryOn(etcd.url, more)
    open.push(discovery)
    return discovery
  }

  /** What a front end of Infera 0.1 asks for at its start. */
  async function range(prefix = '/infera/workers/'): Promise<Record<string, string>[]> {
    const { json } = await etcd.gateway('kv/range', {
      key: base64(prefix),
      range_end: base64(`${prefix.slice(0, -1)}0`),
    })
    return (json.kvs ?? []) as Record<string, string>[]
  }

  test('a worker that the reference registers over the gateway joins, drains and leaves', async () => {
    const follower = new Follower(discover())
    await follower.sees('')
    const { json: lease } = await etcd.gateway('lease/grant', { TTL: 30 })
    const key = base64('/infera/workers/10.0.0.1:8080')
    await etcd.gateway('kv/put', { key, value: base64(reference), lease: lease.ID })
    await follower.sees('10.0.0.1:8080')
    expect(follower.known.get('worker 10.0.0.1:8080')?.record).toEqual({
      ...JSON.parse(reference),
      status: 'active',
    })
    await etcd.gateway('kv/put', {
      key,
      value: base64(reference.replace('{', '{"status":"draining",')),
      lease: lease.ID,
    })
    await follower.sees('10.0.0.1:8080(draining)')
    await etcd.gateway('lease/revoke', { ID: lease.ID })
    await follower.sees('')
    expect(follower.changes.at(-1)).toBe('removed 10.0.0.1:8080 deregistered')
  })

  test('what we register is what a front end of Infera 0.1 reads: key, value and lease', async () => {
    const discovery = discover({ leaseTtlSeconds: 30, heartbeatMs: 10_000 })
    const registration = await discovery.register({
      kind: 'worker',
      record: { ...JSON.parse(reference), status: 'active' },
    })
    const [first, ...others] = await range()
    expect(others).toEqual([])
    expect(utf8(first?.key)).toBe('/infera/workers/10.0.0.1:8080')
    expect(JSON.parse(utf8(first?.value))).toEqual(JSON.parse(reference))
    const { json } = await etcd.gateway('lease/timetolive', { ID: first?.lease })
    expect(json.grantedTTL).toBe('30')
    await registration.drain()
    const [draining] = await range()
    expect(JSON.parse(utf8(draining?.value))).toEqual({ ...JSON.parse(reference), status: 'draining' })
    // Draining is told before the lease ends, and under it.
    expect(draining?.lease).toBe(first?.lease)
    await registration.deregister()
    expect(await range()).toEqual([])
    const { json: gone } = await etcd.gateway('lease/keepalive', { ID: first?.lease })
    expect((gone.result as { TTL?: string }).TTL).toBeUndefined()
  })

  test('two writes of one record are the same bytes, and ids are not escaped', async () => {
    const discovery = discover()
    await discovery.register(worker('[::1]:8080'))
    const [first] = await range()
    await discovery.register(worker('[::1]:8080'))
    const [second] = await range()
    expect(utf8(second?.key)).toBe('/infera/workers/[::1]:8080')
    expect(second?.value).toBe(first?.value)
    expect(Number(second?.mod_revision)).toBeGreaterThan(Number(first?.mod_revision))
  })

  test('servers stand where the reference does not look', async () => {
    const discovery = discover()
    const follower = new Follower(discovery)
    const registration = await discovery.register({ kind: 'server', record: serverRecord('s') })
    await follower.sees('s')
    expect(await range()).toEqual([])
    const [server] = await range('/infera/servers/')
    expect(utf8(server?.key)).toBe('/infera/servers/s')
    expect(JSON.parse(utf8(server?.value))).toEqual(serverRecord('s'))
    await registration.deregister()
    await follower.sees('')
  })

  test('a prefix without its slash gets one', async () => {
    const follower = new Follower(discover({ prefix: '/mine' }))
    await follower.sees('')
    await etcd.ctl('put', '/mine/a:1', JSON.stringify(wireRecord('a:1')))
    await etcd.ctl('put', '/mineral/b:1', JSON.stringify(wireRecord('b:1')))
    await etcd.ctl('put', '/mine/c:1', JSON.stringify(wireRecord('c:1')))
    await follower.sees('a:1 c:1')
    expect(follower.changes).toEqual(['snapshot', 'put a:1', 'put c:1'])
  })

  test('values that cannot be used are skipped, and what was known of a worker stays', async () => {
    const lines: string[] = []
    const say = () => {}
    const warn = (fields: Readonly<Record<string, unknown>>) => lines.push(`${fields.key}: ${fields.reason}`)
    const logger = { debug: say, info: say, warn, error: say }
    await etcd.ctl('put', '/infera/workers/bad:1', 'no JSON')
    const follower = new Follower(discover({ logger, recordBytesMax: 2_000 }))
    await follower.sees('')
    await etcd.ctl('put', '/infera/workers/a:1', JSON.stringify(wireRecord('a:1')))
    await follower.sees('a:1')
    await etcd.ctl('put', '/infera/workers/a:1', '{"worker_id":"a:1"}')
    await etcd.ctl('put', '/infera/workers/b:1', JSON.stringify(wireRecord('other:1')))
    await etcd.ctl(
      'put',
      '/infera/workers/c:1',
      JSON.stringify(wireRecord('c:1', { big: 'x'.repeat(2_000) })),
    )
    await etcd.ctl('put', '/infera/workers/d:1', JSON.stringify(wireRecord('d:1')))
    await follower.sees('a:1 d:1')
    expect(follower.changes).toEqual(['snapshot', 'put a:1', 'put d:1'])
    expect(lines.map((line) => line.split(':').slice(0, 3).join(':'))).toEqual([
      expect.stringContaining('/infera/workers/bad:1'),
      expect.stringContaining('/infera/workers/a:1'),
      "/infera/workers/b:1: it says that its id is 'other",
      '/infera/workers/c:1: it takes more than 2000 bytes',
    ])
  })

  test('a fleet of more than one page is listed at one moment', async () => {
    for (let index = 0; index < 7; index++) {
      await etcd.ctl('put', `/infera/workers/w:${index}`, JSON.stringify(wireRecord(`w:${index}`)))
    }
    const follower = new Follower(discover({ pageLimit: 3 }))
    await follower.sees('w:0 w:1 w:2 w:3 w:4 w:5 w:6')
    expect(follower.changes).toHaveLength(1)
  })

  test('a record that is too large is refused before anything is sent', async () => {
    const discovery = discover({ recordBytesMax: 500 })
    const large = worker('a:1', { note: 'x'.repeat(500) })
    await expect(discovery.register(large)).rejects.toMatchObject({ code: 'INFERA_FLEET_FULL' })
    expect(await range()).toEqual([])
  })

  test('a key that somebody deletes comes back, and one that another process takes is left to it', async () => {
    const [one, other] = [discover(), discover()]
    const follower = new Follower(discover())
    const registration = await one.register(worker('a:1', { note: 'one' }))
    await follower.sees('a:1')
    await etcd.ctl('del', '/infera/workers/a:1')
    await until(() => follower.changes.filter((change) => change === 'put a:1').length === 2)
    await other.register(worker('a:1', { note: 'other' }))
    await registration.lost
    await registration.update({ ...worker('a:1').record, note: 'late' })
    await registration.deregister()
    const [kept] = await range()
    expect(JSON.parse(utf8(kept?.value)).note).toBe('other')
  })
})
