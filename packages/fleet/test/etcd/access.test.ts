import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'
import { afterEach, describe, expect, test } from 'vitest'
import { EtcdDiscovery } from '../../src/etcd/index.js'
import { InvalidFleetOptionsError, type LogFields, type Logger } from '../../src/index.js'
import { EtcdServer, type EtcdServerOptions, etcdMissing } from '../support/etcd-server.js'
import { Follower } from '../support/follower.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { rejection, until } from '../support/wait.js'
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
/** The first line of what is secret in a key. */
const bodyOf = (text: string) => text.split('\n')[1] as string

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
      ['shows no certificate', { ca: pem('ca.pem') }, /alert (bad certificate|certificate required)/],
      [
        'trusts another authority',
        { ca: pem('other-ca.pem'), ...identity },
        /unable to verify|self.signed certificate/,
      ],
      ['trusts only those that Node trusts', { ...identity }, /unable to verify|self.signed certificate/],
    ])('one that %s is not let in, says why, and its registration waits', async (_what, given, reason) => {
      const etcd = await serve({ tls })
      const discovery = discover(etcd.url, { tls: given, requestTimeoutMs: 500 })
      const follower = new Follower(discovery)
      await follower.sees('')
      await until(() => discovery.status.failureCount > 1 && reason.test(discovery.status.reason ?? ''))
      expect(discovery.status).toMatchObject({ state: 'failing', isListed: false })
      const stop = new AbortController()
      const registering = discovery.register(worker('a:1'), { signal: stop.signal })
      await until(() => lines.some((line) => line.startsWith('record cannot be kept in etcd')))
      stop.abort(new Error('enough'))
      await expect(registering).rejects.toThrow('enough')
      expect(await etcd.ctl('get', '', '--prefix', '--keys-only')).toBe('')
      expect(lines.join('\n')).not.toMatch(/PRIVATE KEY/)
      expect(lines.join('\n')).not.toContain(bodyOf(identity.key))
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

    test('one that may only see workers sees them: that servers cannot be listed holds nothing up', async () => {
      const etcd = await serveGuarded()
      await etcd.ctl('role', 'add', 'workers')
      const granted = ['grant-permission', 'workers', '--prefix=true', 'readwrite', '/infera/workers/']
      await etcd.ctl('role', ...granted)
      await etcd.ctl('user', 'add', 'narrow:narrow-secret')
      await etcd.ctl('user', 'grant-role', 'narrow', 'workers')
      await etcd.ctl('put', '/infera/workers/b:1', JSON.stringify(wireRecord('b:1')))
      const states: string[] = []
      const discovery = discover(etcd.url, {
        username: 'narrow',
        password: 'narrow-secret',
        onStatus: ({ state }) => void states.push(state),
      })
      const follower = new Follower(discovery)
      await follower.sees('b:1')
      expect(follower.changes).toEqual(['snapshot b:1'])
      await until(() => discovery.isLive)
      await discovery.register(worker('a:1'))
      await follower.sees('a:1 b:1')
      // That is no failure of the workers' watch, at any time.
      await until(() => lines.some((line) => /cannot be watched.*servers.*permission denied/.test(line)))
      expect(discovery.status).toEqual({ state: 'live', isListed: true, failureCount: 0 })
      expect(states).not.toContain('failing')
    })

    test('a password that is put right lets in what waited, and a user made anew is let in again', async () => {
      const etcd = await serveGuarded()
      const remake = async (password: string) => {
        await etcd.ctl('user', 'delete', 'fleet')
        await etcd.ctl('user', 'add', `fleet:${password}`)
        await etcd.ctl('user', 'grant-role', 'fleet', 'fleet')
      }
      const discovery = discover(etcd.url, { username: 'fleet', password: 'other-secret' })
      const follower = new Follower(discovery)
      const registering = discovery.register(worker('a:1'))
      await until(() => lines.some((line) => line.startsWith('record cannot be kept in etcd')))
      await until(() => discovery.status.state === 'failing')
      await remake('other-secret')
      const registration = await registering
      await follower.sees('a:1')
      // With the user its tokens go, while every connection stays.
      await remake('other-secret')
      await registration.drain()
      await follower.sees('a:1(draining)')
      await until(() => discovery.isLive)
      await discovery.register(worker('b:1'))
      await follower.sees('a:1(draining) b:1')
      expect(follower.changes.filter((change) => change.startsWith('removed'))).toEqual([])
      expect(lines.join('\n')).not.toMatch(/secret/)
    })

    test('a dead endpoint is passed over when the password is shown, too, and after the token was lost', async () => {
      const etcd = await serveGuarded()
      const dead = await TcpProxy.start(etcd.port)
      cleanups.push(() => dead[Symbol.asyncDispose]())
      dead.cut()
      const endpoints = [`127.0.0.1:${dead.port}`, `127.0.0.1:${etcd.port}`]
      const discovery = discover(etcd.url, { ...access, endpoints })
      const follower = new Follower(discovery)
      await discovery.register(worker('a:1'))
      await follower.sees('a:1')
      await until(() => discovery.isLive)
      await etcd.kill()
      await until(() => !discovery.isLive)
      await etcd.restart()
      await discovery.register(worker('b:1'))
      await follower.sees('a:1 b:1')
      await until(() => discovery.isLive)
      expect(dead.refused).toBeGreaterThan(0)
    })

    test('errors and the discovery itself show no password, however deep one looks', async () => {
      const look = (value: unknown) => inspect(value, { depth: Infinity, showHidden: true })
      const make = (more: object) => () => new EtcdDiscovery({ endpoints: ['etcd'], ...access, ...more })
      expect(look(make({})())).not.toMatch(/secret/)
      for (const more of [
        { leaseTtlSeconds: 0 },
        { endpoints: ['http://fleet:fleet-secret@etcd'] },
        { endpoints: ['http://etcd/?password=fleet-secret'] },
        { username: undefined },
        { password: ['fleet-secret'] },
        { passwort: 'fleet-secret' },
      ]) {
        const error = await rejection(Promise.resolve().then(make(more)))
        expect(error).toBeInstanceOf(InvalidFleetOptionsError)
        expect(look(error)).not.toMatch(/secret/)
      }
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
