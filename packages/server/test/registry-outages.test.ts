import { EtcdDiscovery } from '@infera/fleet/etcd'
import { natsRequestPlane } from '@infera/worker/nats'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { EtcdServer, etcdMissing } from '../../fleet/test/support/etcd-server.js'
import { NatsServer, natsMissing } from '../../fleet/test/support/nats-server.js'
import { TcpProxy } from '../../fleet/test/support/tcp-proxy.js'
import { InferaServer } from '../src/infera-server.js'
import type { InferaServerOptions } from '../src/options.js'
import { RegisteredWorker } from './support/registered-worker.js'

/** Asks without a pause from several clients; what fails before its first byte is kept, and what breaks after it. */
class SteadyLoad {
  readonly failures: string[] = []
  readonly broken: string[] = []
  answered = 0
  #isOver = false
  readonly #clients: Promise<void>[]

  constructor(url: string, clients = 3) {
    this.#clients = Array.from({ length: clients }, (_, index) =>
      this.#ask(url, index).catch((error: unknown) => {
        this.failures.push(String(error))
      }),
    )
  }

  async #ask(url: string, client: number): Promise<void> {
    for (let turn = 0; !this.#isOver; turn++) {
      const body = {
        model: 'infera-sim',
        messages: [
          { role: 'user', content: `client ${client} turn ${turn % 7}: ${'words and words '.repeat(10)}` },
        ],
        max_tokens: 3,
        stream: turn % 2 === 0,
      }
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        body: JSON.stringify(body),
      })
      const text = await response.text()
      const isWhole = body.stream ? text.endsWith('data: [DONE]\n\n') : text.includes('"finish_reason"')
      if (response.status === 200 && isWhole) this.answered += 1
      else if (response.status === 200) this.broken.push(text)
      else this.failures.push(`${response.status}: ${text}`)
    }
  }

  /** Resolves once so many more were answered. */
  async goesOn(count = 30): Promise<void> {
    const until = this.answered + count
    while (this.answered < until && this.failures.length === 0)
      await new Promise((resolve) => setImmediate(resolve))
  }

  async end(): Promise<void> {
    this.#isOver = true
    await Promise.all(this.#clients)
  }
}

describe.skipIf(etcdMissing ?? natsMissing)('under steady load', () => {
  let etcd: EtcdServer
  const cleanups: (() => PromiseLike<unknown>)[] = []
  beforeEach(async () => {
    etcd = await EtcdServer.start()
  })
  afterEach(async () => {
    etcd.resume()
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
    await etcd[Symbol.asyncDispose]()
  })

  async function serve(
    more: InferaServerOptions = {},
    endpoint = etcd.url,
  ): Promise<{ server: InferaServer; url: string }> {
    const server = new InferaServer({
      port: 0,
      discovery: { backend: 'etcd', endpoints: [endpoint] },
      ...more,
    })
    cleanups.push(() => server.destroy())
    return { server, url: await server.start() }
  }

  function registry(endpoint = etcd.url): EtcdDiscovery {
    const discovery = new EtcdDiscovery({
      endpoints: [endpoint],
      leaseTtlSeconds: 2,
      heartbeatMs: 100,
      requestTimeoutMs: 1_000,
      deregisterTimeoutMs: 500,
      backoff: { firstMs: 20, maxMs: 100 },
    })
    cleanups.push(() => discovery.close())
    return discovery
  }

  async function start(...args: Parameters<typeof RegisteredWorker.start>): Promise<RegisteredWorker> {
    const worker = await RegisteredWorker.start(...args)
    cleanups.push(() => worker.die())
    cleanups.push(() => worker.worker.destroy())
    return worker
  }

  const statusesOf = (server: InferaServer) =>
    Object.fromEntries(server.router.workers().map(({ worker_id: id, status }) => [id, status]))
  async function until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5))
  }
  const routable = (server: InferaServer) =>
    Object.entries(statusesOf(server))
      .filter(([, status]) => status === 'active')
      .map(([id]) => id)
      .sort()
  const ids = (...workers: RegisteredWorker[]) => workers.map(({ id }) => id).sort()

  test('an etcd that dies, comes back empty, is paused and compacted costs no request', async () => {
    const { server, url } = await serve()
    const discovery = registry()
    const workers = [await start(discovery), await start(discovery), await start(discovery)]
    await until(() => routable(server).length === 3)
    const load = new SteadyLoad(url)
    await load.goesOn()

    await etcd.kill()
    await load.goesOn()
    expect(routable(server)).toEqual(ids(...workers))
    await etcd.restart()
    await load.goesOn()

    await etcd.kill()
    etcd.loseData()
    await etcd.restart()
    await load.goesOn()
    const late = await start(registry())
    workers.push(late)
    await until(() => routable(server).length === 4)

    etcd.pause()
    await load.goesOn(100)
    etcd.resume()
    const { json } = await etcd.gateway('kv/range', { key: 'AA==' })
    await etcd.ctl('compact', (json.header as { revision: string }).revision)
    await load.goesOn()
    await late.leave()
    workers.pop()
    await until(() => Object.keys(statusesOf(server)).length === 3)
    await load.end()
    expect([load.failures, load.broken]).toEqual([[], []])
    expect(routable(server)).toEqual(ids(...workers))
  })

  test('a worker that dies while the registry is away leaves rotation, and stays out of it while its key outlives it', async () => {
    const { server, url } = await serve()
    const discovery = registry()
    // Its own heartbeat ends with it; the key stays for its lease.
    const mortal = registry()
    const kept = await start(discovery)
    const dying = await start(mortal)
    await until(() => routable(server).length === 2)
    const load = new SteadyLoad(url)
    await load.goesOn()
    await etcd.kill()
    await dying.die()
    await load.goesOn(100)
    await until(() => statusesOf(server)[dying.id] === 'dead')
    await etcd.restart()
    await load.goesOn()
    expect(routable(server)).toEqual(ids(kept))
    await dying.worker.destroy()
    await until(() => !(dying.id in statusesOf(server)))
    await load.end()
    expect(load.failures).toEqual([])
    expect(load.broken.length).toBeLessThanOrEqual(3)
  })

  test('a server that is cut off from its registry goes on with whom it knows, and learns the rest afterwards', async () => {
    const proxy = await TcpProxy.start(etcd.port)
    cleanups.push(() => proxy[Symbol.asyncDispose]())
    const { server, url } = await serve({}, `http://127.0.0.1:${proxy.port}`)
    const discovery = registry()
    const [first, second] = [await start(discovery), await start(discovery)]
    await until(() => routable(server).length === 2)
    const load = new SteadyLoad(url)
    await load.goesOn()
    proxy.cut()
    await load.goesOn()
    await second.leave()
    const third = await start(discovery)
    await load.goesOn()
    proxy.mend()
    await until(() => !(second.id in statusesOf(server)) && statusesOf(server)[third.id] === 'active')
    await load.goesOn()
    await load.end()
    expect([load.failures, load.broken]).toEqual([[], []])
    expect(routable(server)).toEqual(ids(first, third))
  })

  test('a broker that dies takes its workers out of reach, and requests go to the others', async () => {
    const nats = await NatsServer.start({ jetStream: true })
    cleanups.push(() => nats[Symbol.asyncDispose]())
    const { server, url } = await serve({ requestTransport: 'nats', nats: { url: nats.url } })
    const discovery = registry()
    const plain = await start(discovery)
    const queued = await start(discovery, ({ workerId, engine }) => [
      natsRequestPlane({
        url: nats.url,
        workerId,
        handler: engine.handler,
        reconnectWaitMs: 20,
        maxPending: 0,
      }),
    ])
    await until(() => routable(server).length === 2)
    const load = new SteadyLoad(url)
    await load.goesOn()
    expect(queued.engine.cachedBlocks).toBeGreaterThan(0)
    // What streams over the broker in this moment breaks after its first byte; all else goes elsewhere.
    await nats.kill()
    await load.goesOn(60)
    await nats.restart()
    await load.goesOn(60)
    await load.end()
    expect(load.failures).toEqual([])
    expect(load.broken.length).toBeLessThanOrEqual(3)
    expect(routable(server)).toEqual(ids(plain, queued))
  })
})
