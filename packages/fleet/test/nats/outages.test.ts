import { createServer, connect as dial, type Socket } from 'node:net'
import { type JetStreamManager, jetstreamManager } from '@nats-io/jetstream'
import { headers as newHeaders } from '@nats-io/transport-node'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { answer, chunks, post, textOf, utf8 } from '../support/bodies.js'
import { natsRecord, newNatsTransport, newNatsWorker, startNatsPair } from '../support/nats-pair.js'
import { eventually, ReferenceFrontEnd, referenceWorker } from '../support/nats-peer.js'
import { NatsServer, natsMissing } from '../support/nats-server.js'
import { aborted, deferred, rejection, until } from '../support/wait.js'

describe.skipIf(natsMissing)('outages of NATS requests', () => {
  let server: NatsServer
  const cleanups: (() => Promise<unknown>)[] = []
  beforeEach(async () => {
    server = await NatsServer.start({ jetStream: true })
  })
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
    await server[Symbol.asyncDispose]()
  })
  const startPair = async (
    ...[options]: Parameters<typeof startNatsPair> extends [string, ...infer R] ? R : never
  ) => {
    const pair = await startNatsPair(server.url, options)
    cleanups.push(async () => pair[Symbol.asyncDispose]())
    return pair
  }

  test('a broker that dies mid-stream breaks the answer, later requests fail at once, and after its return they work', async () => {
    const stopped = deferred<void>()
    const pair = await startPair({
      worker: {
        handler: async ({ path }, { signal }) => {
          if (path !== '/stream') return answer('ok')
          return {
            status: 200,
            headers: {},
            body: (async function* () {
              yield utf8('begun')
              await aborted(signal)
              stopped.resolve()
            })(),
          }
        },
      },
    })
    const response = await pair.transport.send(pair.record, post('{}', '/stream'))
    const body = response.body[Symbol.asyncIterator]()
    expect(Buffer.from((await body.next()).value ?? []).toString()).toBe('begun')
    await server.kill()
    expect(await rejection(body.next())).toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
    await stopped.promise
    const failure = await rejection(pair.transport.send(pair.record, post('{}')))
    expect(failure).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
    expect(String(failure)).toContain(server.url)
    await server.restart()
    await Promise.all([pair.transport.ready(), pair.worker.ready()])
    expect(await textOf(await pair.transport.send(pair.record, post('{}')))).toBe('ok')
    expect(pair.worker.runningRequests).toBe(0)
  })

  test('parts that start before their broker wait for it', async () => {
    await server.kill()
    const worker = newNatsWorker(server.url, { maxPending: 2 })
    const transport = newNatsTransport(server.url, { maxPending: 2 })
    cleanups.push(
      () => worker.destroy(),
      () => transport.close(),
    )
    expect(await rejection(transport.send(natsRecord(worker), post('{}')))).toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
    })
    await server.restart()
    await Promise.all([worker.ready(), transport.ready()])
    expect(await textOf(await transport.send(natsRecord(worker), post('{}')))).toBe('ok')
  })

  test('everything can be closed while the broker is away', async () => {
    const pair = await startPair({ worker: { maxPending: 2 } })
    await server.kill()
    expect(await rejection(pair.transport.send(pair.record, post('{}')))).toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
    })
    await pair.transport.close()
    await pair.worker.stop({ drain: true, timeoutMs: 2_000_000 })
    expect(await rejection(pair.transport.send(pair.record, post('{}')))).toMatchObject({
      code: 'INFERA_FLEET_CLOSED',
    })
  })

  test('a queue that the broker has lost is made again, and requests find their way meanwhile', async () => {
    const pair = await startPair({
      worker: { maxPending: 4 },
      transport: { maxPending: 4, readingMaxAgeMs: 1 },
    })
    const connection = await server.connect()
    cleanups.push(() => connection.close())
    const manager = await jetstreamManager(connection)
    await manager.streams.delete('INFERA_REQUESTS')
    expect(await textOf(await pair.transport.send(pair.record, post('{}')))).toBe('ok')
    await eventually(isBound(manager))
    expect(await textOf(await pair.transport.send(pair.record, post('{}')))).toBe('ok')
  })

  test('a queue in the memory of a broker that was killed is made again', async () => {
    const pair = await startPair({
      worker: { maxPending: 4 },
      transport: { maxPending: 4, readingMaxAgeMs: 1 },
    })
    await server.kill()
    await server.restart()
    await Promise.all([pair.transport.ready(), pair.worker.ready()])
    expect(await textOf(await pair.transport.send(pair.record, post('{}')))).toBe('ok')
    const connection = await server.connect()
    cleanups.push(() => connection.close())
    const manager = await jetstreamManager(connection)
    await eventually(isBound(manager))
  })

  test('a worker that is cut off from its broker is found dead while its request runs', async () => {
    const proxy = await cuttable(server.url)
    cleanups.push(proxy.close)
    const arrived = deferred()
    const worker = newNatsWorker(proxy.url, {
      handler: async (_request, { signal }) => {
        arrived.resolve()
        await aborted(signal)
        throw new Error('aborted')
      },
    })
    const transport = newNatsTransport(server.url)
    cleanups.push(
      () => worker.destroy(),
      () => transport.close(),
    )
    await Promise.all([worker.ready(), transport.ready()])
    const failure = rejection(transport.send(natsRecord(worker), post('{}')))
    await arrived.promise
    proxy.cut()
    expect(await failure).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
    await until(() => worker.runningRequests === 0)
  })

  test('a worker that listens but takes nothing is given up after the time for its word', async () => {
    const connection = await server.connect()
    cleanups.push(() => connection.close())
    const token = Buffer.from('w:1').toString('base64url')
    const { cancels } = await referenceWorker(connection, token, { onRequest: () => {} })
    const transport = newNatsTransport(server.url, { ackTimeoutMs: 30 })
    cleanups.push(() => transport.close())
    await transport.ready()
    const record = natsRecord(newDetached())
    const failure = await rejection(transport.send(record, post('{}')))
    expect(failure).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
    expect(String(failure)).toContain('30 ms')
    await until(() => cancels.filter((text) => text !== '').length === 3)
  })

  test('frames that were lost on the way break the answer', async () => {
    const connection = await server.connect()
    cleanups.push(() => connection.close())
    const token = Buffer.from('w:1').toString('base64url')
    await referenceWorker(connection, token, {
      onRequest: ({ inbox }) => {
        for (const sequence of [0, 1, 3]) {
          const headers = newHeaders()
          headers.set('rs-type', 'data')
          headers.set('rs-seq', String(sequence))
          if (sequence === 0) headers.set('rs-status', '200')
          connection.publish(inbox, `chunk ${sequence} `, { headers })
        }
      },
    })
    const transport = newNatsTransport(server.url)
    cleanups.push(() => transport.close())
    await transport.ready()
    const response = await transport.send(natsRecord(newDetached()), post('{}'))
    let text = ''
    const reading = (async () => {
      for await (const chunk of response.body) text += Buffer.from(chunk).toString()
    })()
    expect(await rejection(reading)).toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
    expect(text).toBe('chunk 0 chunk 1 ')
  })

  test('a reader that is too slow gets a broken answer, never a shortened one', async () => {
    const atWorker = deferred<AbortSignal>()
    const pair = await startPair({
      transport: { bufferBytesMax: 100_000 },
      worker: {
        handler: async (_request, { signal }) => {
          atWorker.resolve(signal)
          return {
            status: 200,
            headers: {},
            body: (async function* () {
              while (!signal.aborted) {
                yield new Uint8Array(10_000)
                await new Promise((resolve) => setImmediate(resolve))
              }
            })(),
          }
        },
      },
    })
    const response = await pair.transport.send(pair.record, post('{}'))
    await aborted(await atWorker.promise)
    expect(await rejection(textOf(response))).toMatchObject({
      code: 'INFERA_FLEET_BROKEN',
      message: expect.stringContaining('bufferBytesMax'),
    })
  })

  test('a request cancelled while it waits in a queue is never begun', async () => {
    const connection = await server.connect()
    cleanups.push(() => connection.close())
    const begun: string[] = []
    const worker = newNatsWorker(server.url, {
      maxPending: 4,
      handler: async ({ path }) => {
        begun.push(path)
        return answer('ok')
      },
    })
    cleanups.push(() => worker.destroy())
    await worker.ready()
    const token = Buffer.from('w:1').toString('base64url')
    const cancelled = new ReferenceFrontEnd(connection)
    // The cancel overtakes its request.
    cancelled.cancel(token)
    await connection.flush()
    await cancelled.askQueued(token, '{"path":"/cancelled","stream":true,"headers":null,"body":{}}')
    const late = new ReferenceFrontEnd(connection)
    const deadline = Date.now() - 60_000
    await late.askQueued(
      token,
      `{"path":"/late","stream":true,"headers":null,"body":{},"deadline_ms":${deadline}}`,
    )
    const wanted = new ReferenceFrontEnd(connection)
    await wanted.askQueued(token, '{"path":"/wanted","stream":true,"headers":null,"body":{}}')
    await wanted.ended()
    expect(begun).toEqual(['/wanted'])
    const manager = await jetstreamManager(connection)
    await eventually(async () => (await manager.streams.info('INFERA_REQUESTS')).state.messages === 0)
  })

  test('a large answer to a front end that vanished does not fill the worker’s memory', async () => {
    const pair = await startPair({
      worker: {
        handler: async (_request, { signal }) => ({ status: 200, headers: {}, body: pieces(signal) }),
      },
    })
    await pair.transport.send(pair.record, post('{}'))
    await server.kill()
    await until(() => pair.worker.runningRequests === 0)
    await server.restart()
  })

  test('two workers under one name: the second does not get the queue until the first has left', async () => {
    const first = newNatsWorker(server.url, { maxPending: 4, handler: async () => answer('first') })
    await first.ready()
    const warnings: unknown[] = []
    const logger = { debug() {}, info() {}, error() {}, warn: (fields: unknown) => warnings.push(fields) }
    const second = newNatsWorker(server.url, { maxPending: 4, logger, handler: async () => answer('second') })
    cleanups.push(() => second.destroy())
    await until(() => JSON.stringify(warnings).includes('already bound'))
    await first.destroy()
    await second.ready()
  })

  test('chunks arrive in their order under load, whatever their size', async () => {
    const sizes = [0, 1, 700_000, 1_500_000, 5]
    const pair = await startPair({
      worker: {
        handler: async () => ({
          status: 200,
          headers: {},
          body: chunks(...sizes.map((size, index) => new Uint8Array(size).fill(index))),
        }),
      },
    })
    const whole = Buffer.concat(sizes.map((size, index) => new Uint8Array(size).fill(index)))
    const response = await pair.transport.send(pair.record, post('{}'))
    const parts: Uint8Array[] = []
    for await (const part of response.body) parts.push(part)
    expect(Buffer.concat(parts).equals(whole)).toBe(true)
  })

  /** A worker only for what its record would say. */
  function newDetached() {
    const worker = newNatsWorker(server.url, { workerId: 'nobody:1' })
    cleanups.push(() => worker.destroy())
    return worker
  }
})

const isBound = (manager: JetStreamManager) => async () =>
  (await manager.consumers.info('INFERA_REQUESTS', Buffer.from('w:1').toString('base64url'))).push_bound ===
  true

async function* pieces(signal: AbortSignal): AsyncGenerator<Uint8Array> {
  while (!signal.aborted) yield new Uint8Array(65_536)
}

/** A way to the broker that can be cut for good. */
async function cuttable(url: string) {
  const { port, hostname } = new URL(url)
  const sockets = new Set<Socket>()
  const listener = createServer((near) => {
    const far = dial(Number(port), hostname)
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => socket.destroy())
    }
    near.pipe(far).pipe(near)
  })
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  const address = listener.address()
  const close = () =>
    new Promise<void>((resolve) => {
      listener.close(() => resolve())
      for (const socket of sockets) socket.destroy()
    })
  return {
    url: `nats://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
    cut: () => void close(),
    close,
  }
}
