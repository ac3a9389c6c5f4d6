import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, test } from 'vitest'
import type { EtcdDiscovery } from '../../src/etcd/index.js'
import type { LogFields, Logger } from '../../src/index.js'
import { EtcdServer, type EtcdServerOptions, etcdMissing } from '../support/etcd-server.js'
import { Follower } from '../support/follower.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { until } from '../support/wait.js'
import { discoveryOn, wireRecord, worker } from './fleet.js'

const pathOf = (name: string) => fileURLToPath(new URL(`../vectors/tls/test-only-${name}`, import.meta.url))
const pem = (name: string) => readFileSync(pathOf(name), 'utf8')
const identity = { cert: pem('worker.pem'), key: pem('worker.key') }
/** etcd's own client shows itself as a worker does: the server's certificate is for servers only. */
const tls: EtcdServerOptions['tls'] = {
  cert: pathOf('server.pem'),
  key: pathOf('server.key'),
  ca: pathOf('ca.pem'),
  clientCert: pathOf('worker.pem'),
  clientKey: pathOf('worker.key'),
}
const key = '/infera/workers/a:1'

describe.skipIf(etcdMissing)('access to etcd', () => {
  const cleanups: (() => PromiseLike<unknown>)[] = []
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
    lines.length = 0
  })
  async function serve(options: EtcdServerOptions = {}): Promise<EtcdServer> {
    const server = await EtcdServer.start(options)
    cleanups.push(() => server[Symbol.asyncDispose]())
    return server
  }
  /** What the log of the present test says. */
  const lines: string[] = []
  const say = (fields: LogFields, message: string) => void lines.push(`${message} ${JSON.stringify(fields)}`)
  const logger: Logger = { debug: say, info: say, warn: say, error: say }
  function discover(url: string, more: Parameters<typeof discoveryOn>[1]): EtcdDiscovery {
    const discovery = discoveryOn(url, { deregisterTimeoutMs: 500, logger, ...more })
    cleanups.push(() => discovery.close())
    return discovery
  }

  describe('over TLS', () => {
    test('records go both ways when each side trusts the authority of the other', async () => {
      const etcd = await serve({ tls })
      const discovery = discover(etcd.url, { tls: { ca: pem('ca.pem'), ...identity } })
      const follower = new Follower(discovery)
      await discovery.register(worker('a:1'))
      await etcd.ctl('put', '/infera/workers/b:1', JSON.stringify(wireRecord('b:1')))
      await follower.sees('a:1 b:1')
      expect(await etcd.ctl('get', key, '--print-value-only')).toContain('"worker_id":"a:1"')
    })

    test.each([
      ['shows no certificate', { ca: pem('ca.pem') }],
      ['trusts another authority', { ca: pem('other-ca.pem'), ...identity }],
      ['trusts only those that Node trusts', { ...identity }],
    ])('one that %s is not let in, says so, and goes on asking', async (_what, given) => {
      const etcd = await serve({ tls })
      const discovery = discover(etcd.url, { tls: given, requestTimeoutMs: 500 })
      const follower = new Follower(discovery)
      await follower.sees('')
      await until(() => discovery.status.failureCount > 1)
      expect(discovery.status).toMatchObject({ state: 'failing', isListed: false })
      expect(discovery.status.reason).not.toBe('')
      expect(lines.join('\n')).not.toMatch(/PRIVATE KEY/)
    })

    test('a dead endpoint among several is passed over, and one that dies later costs nobody', async () => {
      const etcd = await serve({ tls })
      const [dead, dying] = await Promise.all([TcpProxy.start(etcd.port), TcpProxy.start(etcd.port)])
      cleanups.push(
        () => dead[Symbol.asyncDispose](),
        () => dying[Symbol.asyncDispose](),
      )
      dead.cut()
      const endpoints = [dead.port, dying.port, etcd.port].map((port) => `https://127.0.0.1:${port}`)
      const discovery = discover(etcd.url, { endpoints, tls: { ca: pem('ca.pem'), ...identity } })
      const follower = new Follower(discovery)
      await discovery.register(worker('a:1'))
      await follower.sees('a:1')
      dying.cut()
      await etcd.ctl('put', '/infera/workers/b:1', JSON.stringify(wireRecord('b:1')))
      await follower.sees('a:1 b:1')
      await discovery.register(worker('c:1'))
      await follower.sees('a:1 b:1 c:1')
      expect(follower.changes.filter((change) => change.startsWith('removed'))).toEqual([])
    })
  })

  describe('with a password', () => {
    /** The user `fleet` may do everything under `/infera/`, and nothing else. */
    async function serveGuarded(): Promise<EtcdServer> {
      const etcd = await serve()
      await etcd.ctl('user', 'add', 'root:root-secret')
      await etcd.ctl('user', 'grant-role', 'root', 'root')
      await etcd.ctl('role', 'add', 'fleet')
      await etcd.ctl('role', 'grant-permission', 'fleet', '--prefix=true', 'readwrite', '/infera/')
      await etcd.ctl('user', 'add', 'fleet:fleet-secret')
      await etcd.ctl('user', 'grant-role', 'fleet', 'fleet')
      await etcd.ctl('auth', 'enable')
      etcd.user = 'root:root-secret'
      return etcd
    }
    const access = { username: 'fleet', password: 'fleet-secret' }

    test('a user with rights to the prefix registers, watches and leaves', async () => {
      const etcd = await serveGuarded()
      const discovery = discover(etcd.url, access)
      const follower = new Follower(discovery)
      const registration = await discovery.register(worker('a:1'))
      await follower.sees('a:1')
      await registration.drain()
      await follower.sees('a:1(draining)')
      await registration.deregister()
      await follower.sees('')
      expect(await etcd.ctl('get', '', '--prefix', '--keys-only')).toBe('')
    })

    test('an etcd that starts again knows nobody any more: everything is kept all the same', async () => {
      const etcd = await serveGuarded()
      const discovery = discover(etcd.url, access)
      const follower = new Follower(discovery)
      await discovery.register(worker('a:1'))
      await follower.sees('a:1')
      await until(() => discovery.isLive)
      await etcd.kill()
      await until(() => !discovery.isLive)
      await etcd.restart()
      await until(() => discovery.isLive)
      await etcd.ctl('put', '/infera/workers/b:1', JSON.stringify(wireRecord('b:1')))
      await follower.sees('a:1 b:1')
      await discovery.register(worker('c:1'))
      await follower.sees('a:1 b:1 c:1')
      // Long enough for the lease to have run out, had nobody kept it.
      await etcd.ctl('lease', 'grant', '2')
      const leases = async () => (await etcd.ctl('lease', 'list')).trim().split('\n').length
      while ((await leases()) > 3) await new Promise((resolve) => setImmediate(resolve))
      expect(follower.pool).toBe('a:1 b:1 c:1')
      expect(follower.changes.filter((change) => change.startsWith('removed'))).toEqual([])
    })

    test.each([
      ['the wrong password', { username: 'fleet', password: 'wrong-secret' }],
      ['none', {}],
      ['rights elsewhere', { ...access, prefix: '/elsewhere/workers/' }],
    ])('one with %s is not let in, says why, and its registration waits', async (_what, given) => {
      const etcd = await serveGuarded()
      const discovery = discover(etcd.url, given)
      const follower = new Follower(discovery)
      await follower.sees('')
      await until(() => discovery.status.failureCount > 1)
      expect(discovery.status.reason).toMatch(/authentication failed|user name is empty|permission denied/)
      const stop = new AbortController()
      const registering = discovery.register(worker('a:1'), { signal: stop.signal })
      await until(() => lines.some((line) => line.startsWith('record cannot be kept in etcd')))
      stop.abort(new Error('enough'))
      await expect(registering).rejects.toThrow('enough')
      expect(lines.join('\n')).not.toMatch(/secret/)
      expect(await etcd.ctl('get', '', '--prefix', '--keys-only')).toBe('')
    })

    test('rights that are taken away stop the watch, and given back let it go on', async () => {
      const etcd = await serveGuarded()
      const discovery = discover(etcd.url, access)
      const follower = new Follower(discovery)
      await discovery.register(worker('a:1'))
      await follower.sees('a:1')
      await until(() => discovery.isLive)
      await etcd.ctl('user', 'revoke-role', 'fleet', 'fleet')
      await until(() => discovery.status.state === 'failing')
      expect(follower.pool).toBe('a:1')
      await etcd.ctl('user', 'grant-role', 'fleet', 'fleet')
      await until(() => discovery.isLive)
      await etcd.ctl('put', '/infera/workers/b:1', JSON.stringify(wireRecord('b:1')))
      await follower.sees('a:1 b:1')
    })
  })
})
