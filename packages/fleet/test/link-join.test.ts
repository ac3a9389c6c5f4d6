import { afterEach, describe, expect, test } from 'vitest'
import {
  EmbeddedDiscovery,
  InvalidFleetOptionsError,
  LinkRefusedError,
  type LinkServer,
  LinkWorker,
  type LinkWorkerOptions,
  type Logger,
  silentLogger,
} from '../src/index.js'
import { VirtualClock } from '../src/virtual-clock.js'
import { answer, post, textOf, utf8 } from './support/bodies.js'
import { MemoryNet } from './support/memory-net.js'
import { serverRecord, workerRecord } from './support/records.js'
import { deferred, rejection } from './support/wait.js'

// Everything here runs in memory under a virtual clock: whole minutes of reconnecting cost no time and repeat exactly.

const workers: LinkWorker[] = []
afterEach(() => {
  for (const worker of workers.splice(0)) worker.destroy()
})

function world() {
  const clock = new VirtualClock()
  const net = new MemoryNet(clock)
  const newWorker = (options: Partial<LinkWorkerOptions> & Pick<LinkWorkerOptions, 'join'>) => {
    const worker = new LinkWorker({
      record: workerRecord('w:1'),
      handler: async () => answer('ok'),
      dial: net.dial,
      clock,
      random: () => 0.5,
      ...options,
    })
    workers.push(worker)
    const events: string[] = []
    worker.on('state', (event) => {
      events.push(`${event.type} ${event.address ?? new URL(event.url).hostname}`)
    })
    return { worker, events }
  }
  /** Lets this much time pass, and everything that it brings. */
  const pass = (ms: number) => clock.advanceAsync(ms)
  return { clock, net, newWorker, pass }
}

const isJoinedTo = (server: LinkServer) => server.load('w:1') !== undefined
const load = () => ({ runningRequests: 0, waitingRequests: 0, kvUsageRatio: 0 })
const ask = async (server: LinkServer, id = 'w:1') =>
  textOf(await server.requests.send(workerRecord(id), post('{}')))

describe('a host name', () => {
  const resolved = (addresses: () => readonly string[]) => async () =>
    addresses().map((address) => ({ address, family: 4 }))

  test('stands for a server at each of its addresses, and `joined` waits for all of them', async () => {
    const { net, newWorker, pass } = world()
    const [a, b] = [net.serve('a', ['10.0.0.1']), net.serve('b', ['10.0.0.2'])]
    const resolve = resolved(() => ['10.0.0.2', '10.0.0.1'])
    const { worker } = newWorker({ join: 'ws://servers:8000', resolve })
    worker.start()
    await pass(100)
    const url = 'ws://servers:8000/infera/v1/link'
    expect(await worker.joined).toMatchObject([
      { url, address: '10.0.0.1', server: { server_id: 'a' } },
      { url, address: '10.0.0.2', server: { server_id: 'b' } },
    ])
    const [fromA, fromB] = [ask(a), ask(b)]
    await pass(100)
    expect(await Promise.all([fromA, fromB])).toEqual(['ok', 'ok'])
  })

  test('is asked again: new addresses are joined', async () => {
    const { net, newWorker, pass } = world()
    const addresses = ['10.0.0.1']
    net.serve('a', ['10.0.0.1'])
    const b = net.serve('b', ['10.0.0.2'])
    const { worker } = newWorker({ join: 'ws://servers', load, resolve: resolved(() => addresses) })
    worker.start()
    await pass(100)
    expect(await worker.joined).toHaveLength(1)
    addresses.push('10.0.0.2')
    await pass(30_000)
    expect(isJoinedTo(b)).toBe(true)
  })

  test('loses an address: the connection stays while it lives, with what runs on it, and is not opened again', async () => {
    const { net, newWorker, pass } = world()
    const addresses = ['10.0.0.1', '10.0.0.2']
    const gate = deferred()
    const a = net.serve('a', ['10.0.0.1'])
    net.serve('b', ['10.0.0.2'])
    const { worker, events } = newWorker({
      join: 'ws://servers',
      resolve: resolved(() => addresses),
      handler: async () => {
        await gate.promise
        return answer('ok')
      },
    })
    worker.start()
    await pass(100)
    const running = ask(a)
    await pass(10)
    addresses.shift()
    await pass(60_000)
    expect(net.openLinks('10.0.0.1')).toBe(1)
    gate.resolve()
    await pass(10)
    expect(await running).toBe('ok')
    net.cut('10.0.0.1')
    await pass(60_000)
    expect(net.dialed.filter((address) => address === '10.0.0.1')).toHaveLength(1)
    expect(events.at(-1)).toBe('disconnected 10.0.0.1')

    // It comes back under the same address.
    addresses.push('10.0.0.1')
    await pass(30_000)
    expect(net.openLinks('10.0.0.1')).toBe(1)
  })

  test('loses an address that cannot be reached: it is left at once, and `joined` waits no longer for it', async () => {
    const { net, newWorker, pass } = world()
    const addresses = ['10.0.0.1', '10.0.0.2']
    net.serve('b', ['10.0.0.2'])
    const { worker } = newWorker({ join: 'ws://servers', resolve: resolved(() => addresses) })
    worker.start()
    await pass(10_000)
    addresses.shift()
    await pass(25_000)
    expect(await worker.joined).toMatchObject([{ address: '10.0.0.2' }])
    const attempts = net.dialed.length
    await pass(60_000)
    expect(net.dialed).toHaveLength(attempts)
  })

  test('that comes back before its connection is down is as if it had never left', async () => {
    const { net, newWorker, pass } = world()
    const addresses = ['10.0.0.1', '10.0.0.2']
    net.serve('a', ['10.0.0.1'])
    net.serve('b', ['10.0.0.2'])
    const { worker } = newWorker({ join: 'ws://servers', resolve: resolved(() => addresses) })
    const pauses: unknown[] = []
    worker.on('state', (event) => event.type === 'disconnected' && pauses.push(event.retryInMs))
    worker.start()
    await pass(100)
    addresses.shift()
    await pass(30_000)
    addresses.push('10.0.0.1')
    await pass(30_000)
    net.cut('10.0.0.1')
    expect(pauses).toEqual([])
    await pass(1_000)
    expect(net.openLinks('10.0.0.1')).toBe(1)
    expect(net.dialed).toHaveLength(3)
    expect(pauses).toEqual([187.5])
  })

  test('that cannot be resolved is tried again; what is joined stays joined', async () => {
    const { net, newWorker, pass } = world()
    let isDown = true
    const a = net.serve('a', ['10.0.0.1'])
    const resolve = async () => {
      if (isDown) throw new Error('name server is down')
      return [{ address: '10.0.0.1', family: 4 }]
    }
    const { worker } = newWorker({ join: 'ws://servers', load, resolve })
    worker.start()
    await pass(5_000)
    expect(net.dialed).toEqual([])
    isDown = false
    await pass(10_000)
    expect(isJoinedTo(a)).toBe(true)
    isDown = true
    await pass(120_000)
    expect(isJoinedTo(a)).toBe(true)
  })

  test('names more servers than serversMax: some are left out with one warning, and come in when there is room', async () => {
    const { net, newWorker, pass } = world()
    const addresses = ['10.0.0.1', '10.0.0.2', '10.0.0.3']
    for (const address of addresses) net.serve(address, [address])
    const warnings: unknown[] = []
    const logger: Logger = { ...silentLogger, warn: (fields) => warnings.push(fields) }
    const resolve = resolved(() => addresses)
    const { worker } = newWorker({ join: 'ws://servers', serversMax: 2, resolve, logger })
    worker.start()
    await pass(100)
    expect(await worker.joined).toHaveLength(2)
    await pass(90_000)
    expect(warnings).toEqual([{ leftOut: 1, serversMax: 2 }])
    expect(net.dialed).toEqual(['10.0.0.1', '10.0.0.2'])
    addresses.shift()
    net.stop('10.0.0.1')
    await pass(40_000)
    expect(net.openLinks('10.0.0.3')).toBe(1)
  })
})

describe('a discovery', () => {
  test('gives servers that are joined as they come and go; workers in it are not', async () => {
    const { net, newWorker, pass } = world()
    const discovery = new EmbeddedDiscovery()
    const [a, b] = [net.serve('a', ['a']), net.serve('b', ['b'])]
    const { worker } = newWorker({ join: discovery, load })
    let isJoined = false
    void worker.joined.then(() => {
      isJoined = true
    })
    worker.start()
    await discovery.register({ kind: 'worker', record: workerRecord('other:1', { url: 'http://other:1' }) })
    await pass(60_000)
    // Nobody is there yet: a worker that has joined nothing does not say that it has.
    expect(isJoined).toBe(false)
    const entry = await discovery.register({
      kind: 'server',
      record: serverRecord('a', { url: 'http://a:1' }),
    })
    await pass(100)
    expect(await worker.joined).toMatchObject([{ url: 'ws://a:1/infera/v1/link' }])
    await discovery.register({ kind: 'server', record: serverRecord('b', { url: 'http://b:1' }) })
    await pass(100)
    expect([isJoinedTo(a), isJoinedTo(b)]).toEqual([true, true])
    await entry.deregister()
    net.cut('a')
    await pass(60_000)
    expect([isJoinedTo(a), isJoinedTo(b)]).toEqual([false, true])
    expect(net.dialed).toEqual(['a', 'b'])
    await discovery.close()
    await pass(60_000)
    expect(isJoinedTo(b)).toBe(true)
  })
})

describe('two targets of one server', () => {
  test('do not throw each other out for ever: one is parked until the other is down', async () => {
    const { net, newWorker, pass } = world()
    const server = net.serve('s', ['one', 'two'])
    const { worker, events } = newWorker({ join: ['ws://one', 'ws://two'], load })
    worker.start()
    await pass(600_000)
    expect(net.dialed).toEqual(['one', 'two'])
    expect(events.filter((event) => event.startsWith('parked'))).toEqual(['parked one'])
    expect([net.openLinks('one'), net.openLinks('two')]).toEqual([0, 1])
    expect(await worker.joined).toHaveLength(1)
    const asked = ask(server)
    await pass(100)
    expect(await asked).toBe('ok')

    // The way that was used breaks: the other one takes its place.
    net.stop('two')
    await pass(1_000)
    expect(net.openLinks('one')).toBe(1)
    expect(isJoinedTo(server)).toBe(true)
  })

  test('that lead to two servers later serve both', async () => {
    const { net, newWorker, pass } = world()
    net.serve('s', ['one', 'two'])
    const { worker } = newWorker({ join: ['ws://one', 'ws://two'], load })
    worker.start()
    await pass(1_000)
    net.stop('one')
    net.stop('two')
    const [one, two] = [net.serve('s1', ['one']), net.serve('s2', ['two'])]
    await pass(30_000)
    expect([isJoinedTo(one), isJoinedTo(two)]).toEqual([true, true])
  })

  test('servers that share an id by mistake are two servers all the same', async () => {
    const { net, newWorker, pass } = world()
    const [one, two] = [net.serve('same', ['one']), net.serve('same', ['two'])]
    const { worker } = newWorker({ join: ['ws://one', 'ws://two'], load })
    worker.start()
    await pass(1_000)
    net.cut('one')
    await pass(1_000)
    expect([isJoinedTo(one), isJoinedTo(two)]).toEqual([true, true])
  })

  test('another worker with the same id is no reason to park: each comes back, with long pauses', async () => {
    const { net, newWorker, pass } = world()
    net.serve('s', ['one'])
    const first = newWorker({ join: 'ws://one' })
    first.worker.start()
    await pass(1_000)
    newWorker({ join: 'ws://one' }).worker.start()
    await pass(20_000)
    expect(first.events).not.toContain('parked one')
    expect(first.events.filter((event) => event === 'welcomed one').length).toBeGreaterThan(1)
  })
})

describe('several servers', () => {
  test('one that restarts or refuses does not touch what runs for the other', async () => {
    const { net, newWorker, pass } = world()
    const gate = deferred()
    const a = net.serve('a', ['a'])
    net.serve('b', ['b'])
    const { worker } = newWorker({
      join: ['ws://a', 'ws://b'],
      handler: async () => ({
        status: 200,
        headers: {},
        body: (async function* () {
          yield utf8('begun, ')
          await gate.promise
          yield utf8('ended')
        })(),
      }),
    })
    worker.start()
    await pass(100)
    const running = ask(a)
    await pass(100)
    net.stop('b')
    await pass(60_000)
    net.serve('b', ['b'], { settingsFor: () => ({ block_size: 1 }) })
    await pass(60_000)
    expect(net.openLinks('b')).toBe(1)
    net.stop('b')
    gate.resolve()
    await pass(100)
    expect(await running).toBe('begun, ended')
  })

  test('a refusal of one is final for that one alone, and the others serve on', async () => {
    const { net, newWorker, pass } = world()
    const a = net.serve('a', ['a'])
    net.serve('b', ['b'], { settingsFor: () => ({ block_size: 16 }) })
    const { worker, events } = newWorker({ join: ['ws://a', 'ws://b'], settings: { block_size: 64 } })
    worker.start()
    await pass(600_000)
    expect(await rejection(worker.joined)).toBeInstanceOf(LinkRefusedError)
    expect(events.filter((event) => event === 'connecting b')).toHaveLength(1)
    const asked = ask(a)
    await pass(100)
    expect(await asked).toBe('ok')
  })

  test('a drain is told to every server, also to one that has not answered the hello yet', async () => {
    const { net, newWorker, pass } = world()
    const discoveries = { a: new EmbeddedDiscovery(), b: new EmbeddedDiscovery() }
    net.serve('a', ['a'], { discovery: discoveries.a })
    const { worker } = newWorker({ join: ['ws://a', 'ws://b'] })
    worker.start()
    await pass(100)
    net.serve('b', ['b'], { discovery: discoveries.b })
    // Until the hello is on its way to the second server, and no further.
    while (net.openLinks('b') === 0) await pass(0.5)
    const drained = worker.drain()
    await pass(1_000)
    await drained
    expect(await statusIn(discoveries.a)).toEqual(['draining'])
    expect(await statusIn(discoveries.b)).toEqual(['draining'])
  })

  test('a worker that drains joins no servers that come up', async () => {
    const { net, newWorker, pass } = world()
    const discovery = new EmbeddedDiscovery()
    net.serve('a', ['a'])
    const { worker } = newWorker({ join: discovery })
    worker.start()
    await discovery.register({ kind: 'server', record: serverRecord('a', { url: 'http://a' }) })
    await pass(100)
    const drained = worker.drain()
    await discovery.register({ kind: 'server', record: serverRecord('b', { url: 'http://b' }) })
    await pass(100)
    await drained
    expect(net.dialed).toEqual(['a'])
  })

  test('several workers of one process serve side by side, and one that leaves takes nothing from the others', async () => {
    const { net, newWorker, pass } = world()
    const [a, b] = [net.serve('a', ['a']), net.serve('b', ['b'])]
    const ids = ['host:1', 'host:2', 'host:3']
    const started = ids.map((id) => {
      const { worker } = newWorker({
        join: ['ws://a', 'ws://b'],
        record: workerRecord(id),
        handler: async () => answer(id),
      })
      worker.start()
      return worker
    })
    await pass(100)
    const asked = ids.flatMap((id) => [ask(a, id), ask(b, id)])
    await pass(100)
    expect(await Promise.all(asked)).toEqual(ids.flatMap((id) => [id, id]))
    started[0]?.destroy()
    const later = Promise.all(ids.slice(1).flatMap((id) => [ask(a, id), ask(b, id)]))
    await pass(100)
    expect(await later).toHaveLength(4)
  })

  test('a worker that leaves while names are resolved and servers are dialed leaves no timer behind', async () => {
    const { clock, newWorker, pass } = world()
    const { worker } = newWorker({
      join: ['ws://names', 'ws://10.0.0.1'],
      resolve: () => new Promise(() => {}),
    })
    worker.start()
    await pass(1_000)
    const closed = worker.close()
    await pass(0)
    await closed
    expect(await rejection(worker.joined)).toMatchObject({ code: 'INFERA_FLEET_CLOSED' })
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('the option join', () => {
  const options = { record: workerRecord('w:1'), handler: async () => answer('ok') }
  test.each([
    [{ join: [] }, /LinkWorker: join: must name at least one server/],
    [{ join: 7 as never }, /LinkWorker: join: must be a url, a list of urls, or a Discovery/],
    [{ join: ['ws://a', 'ws://b', 'ws://a/'], serversMax: 1 }, /names 2 servers and serversMax is 1/],
    [{ join: 'ws://a', tls: {} }, /option 'tls' is for servers with TLS/],
  ])('%j is an error that says what to change', (wrong, message) => {
    expect(() => new LinkWorker({ ...options, ...wrong })).toThrow(InvalidFleetOptionsError)
    expect(() => new LinkWorker({ ...options, ...wrong })).toThrow(message)
  })

  test('with a dialer of one’s own, names are left to it', async () => {
    const { net, newWorker, pass } = world()
    net.serve('a', ['a'])
    const { worker } = newWorker({ join: 'ws://a' })
    worker.start()
    await pass(100)
    expect(await worker.joined).toMatchObject([{ url: 'ws://a/infera/v1/link' }])
  })
})

async function statusIn(discovery: EmbeddedDiscovery): Promise<string[]> {
  for await (const change of discovery.watch()) {
    if (change.type === 'snapshot')
      return change.entries.map((entry) => (entry.kind === 'worker' ? entry.record.status : ''))
  }
  return []
}
