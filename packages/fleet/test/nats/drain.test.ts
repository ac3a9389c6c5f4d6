import { jetstreamManager } from '@nats-io/jetstream'
import type { NatsConnection } from '@nats-io/transport-node'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { VirtualClock } from '../../src/index.js'
import { answer } from '../support/bodies.js'
import { newNatsWorker } from '../support/nats-pair.js'
import { ReferenceFrontEnd } from '../support/nats-peer.js'
import { NatsServer, natsMissing } from '../support/nats-server.js'
import { aborted, deferred, until } from '../support/wait.js'

const token = Buffer.from('w:1').toString('base64url')
const envelope = (path: string, migratable = false) =>
  `{"path":"${path}","stream":true,"headers":null,"body":{}${migratable ? ',"migratable":true' : ''}}`
const notice = { headers: { 'rs-type': 'error' }, text: 'infera: worker draining' }
const cancelled = { headers: { 'rs-type': 'error' }, text: 'request cancelled' }

describe.skipIf(natsMissing)('draining a worker on NATS', () => {
  let server: NatsServer
  let connection: NatsConnection
  const cleanups: (() => Promise<void>)[] = []
  beforeAll(async () => {
    server = await NatsServer.start({ jetStream: true })
  })
  beforeEach(async () => {
    connection = await server.connect()
    const manager = await jetstreamManager(connection)
    await manager.streams.delete('INFERA_REQUESTS').catch(() => {
      // The first test finds none.
    })
  })
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
    await connection.close()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  /** `/fast` waits for its gate, `/slow` for its cancel. */
  const start = async (options: Parameters<typeof newNatsWorker>[1] = {}) => {
    const gate = deferred()
    const begun: string[] = []
    const worker = newNatsWorker(server.url, {
      handler: async ({ path }, { signal }) => {
        begun.push(path)
        if (path === '/fast') await gate.promise
        else {
          await aborted(signal)
          throw new Error('aborted')
        }
        return answer('ok')
      },
      ...options,
    })
    cleanups.push(() => worker.destroy())
    await worker.ready()
    const ask = async (path: string, migratable = false) => {
      const frontEnd = new ReferenceFrontEnd(connection)
      const before = begun.length
      frontEnd.ask(token, envelope(path, migratable))
      await until(() => begun.length > before)
      return frontEnd
    }
    return { worker, gate, begun, ask }
  }
  const typesOf = (frontEnd: ReferenceFrontEnd) =>
    frontEnd.frames.map(
      ({ headers, text }) => headers['rs-type'] ?? `${headers.code ?? 'receipt'} ${text.length}`,
    )

  test('what ends in time ends, and nobody new is let in meanwhile', async () => {
    const { worker, gate, ask, begun } = await start()
    const fast = await ask('/fast')
    const stopping = worker.stop({ drain: true, timeoutMs: 60_000 })
    // The worker's own connection has told the broker by the time that a probe of it is answered.
    await connection.request(`infera.cancel.${token}`, '')
    const late = new ReferenceFrontEnd(connection)
    late.ask(token, envelope('/fast'))
    await until(() => late.frames.length > 0)
    expect(late.frames).toEqual([{ headers: { code: '503' }, text: '' }])
    expect(begun).toEqual(['/fast'])
    gate.resolve()
    await stopping
    expect((await fast.ended()).map(({ headers }) => headers['rs-type'])).toEqual(['data', 'done'])
  })

  test('after the wait what can go on elsewhere is handed back, once, and the rest is cancelled', async () => {
    const clock = new VirtualClock()
    const { worker, ask } = await start({ clock })
    const migratable = await ask('/slow', true)
    const other = await ask('/slow')
    const stopping = worker.stop({ drain: true, timeoutMs: 5_000 })
    await clock.advanceAsync(4_999)
    expect(migratable.frames).toEqual([])
    await clock.advanceAsync(1)
    await stopping
    expect(await migratable.ended()).toEqual([notice])
    expect(await other.ended()).toEqual([cancelled])
  })

  test('without time to wait it is handed back at once', async () => {
    const { worker, ask } = await start()
    const migratable = await ask('/slow', true)
    await worker.stop({ drain: true, timeoutMs: 0 })
    expect(await migratable.ended()).toEqual([notice])
  })

  test('a stop without drain cancels at once and hands nothing back', async () => {
    const { worker, ask } = await start()
    const migratable = await ask('/slow', true)
    await worker.stop({ drain: false })
    expect(await migratable.ended()).toEqual([cancelled])
  })

  test('a request that has ended hears nothing of the drain', async () => {
    const { worker, gate, ask } = await start()
    gate.resolve()
    const fast = await ask('/fast', true)
    await fast.ended()
    await worker.stop({ drain: true, timeoutMs: 0 })
    await connection.flush()
    expect(typesOf(fast)).toEqual(['data', 'done'])
  })

  test('the queue runs empty before the worker leaves it, and its consumer is deleted', async () => {
    const { worker, gate, begun } = await start({ maxPending: 10 })
    const manager = await jetstreamManager(connection)
    const frontEnds = [1, 2, 3].map(() => new ReferenceFrontEnd(connection))
    for (const frontEnd of frontEnds) await frontEnd.askQueued(token, envelope('/fast'))
    const stopping = worker.stop({ drain: true, timeoutMs: 60_000 })
    await until(() => begun.length === 3)
    gate.resolve()
    await stopping
    for (const frontEnd of frontEnds) {
      expect((await frontEnd.ended()).map(({ headers }) => headers['rs-type'])).toEqual(['data', 'done'])
    }
    const names: string[] = []
    for await (const { name } of manager.consumers.list('INFERA_REQUESTS')) names.push(name)
    expect(names).toEqual([])
    expect((await manager.streams.info('INFERA_REQUESTS')).state.messages).toBe(0)
  })

  test('a queue that cannot be read is waited for no longer than one look', async () => {
    const { worker } = await start({ maxPending: 10, jetStreamTimeoutMs: 50 })
    const manager = await jetstreamManager(connection)
    await manager.streams.delete('INFERA_REQUESTS')
    await worker.stop({ drain: true, timeoutMs: 2_000_000 })
  })

  test('a second stop is the first one', async () => {
    const { worker } = await start()
    const first = worker.stop({ drain: false })
    expect(worker.stop()).toBe(first)
    await first
    await worker.close()
    await worker.destroy()
  })
})
