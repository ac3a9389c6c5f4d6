import { jetstreamManager } from '@nats-io/jetstream'
import type { NatsConnection } from '@nats-io/transport-node'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { TransportRequest } from '../../src/index.js'
import { answer, chunks, post, textOf } from '../support/bodies.js'
import { natsRecord, newNatsTransport, newNatsWorker } from '../support/nats-pair.js'
import { eventually, ReferenceFrontEnd, referenceWorker } from '../support/nats-peer.js'
import { NatsServer, natsMissing } from '../support/nats-server.js'
import { aborted, deferred, rejection, until } from '../support/wait.js'

// `host:9000`, whose token the specification states.
const workerId = 'host:9000'
const token = 'aG9zdDo5MDAw'
const envelope =
  '{"path": "/v1/chat/completions", "stream": true, "headers": {"X-Data-Parallel-Rank": "1"}, "body": {"model": "m", "room": 9223372036854775807}}'

describe.skipIf(natsMissing)('beside parts of the reference', () => {
  let plain: NatsServer
  let streaming: NatsServer
  let connection: NatsConnection
  const cleanups: (() => Promise<void>)[] = []
  beforeAll(async () => {
    plain = await NatsServer.start()
    streaming = await NatsServer.start({ jetStream: true })
  })
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
    await connection.close()
  })
  afterAll(async () => {
    await plain[Symbol.asyncDispose]()
    await streaming[Symbol.asyncDispose]()
  })

  const useServer = async (server: NatsServer) => {
    connection = await server.connect()
    if (server !== streaming) return
    const manager = await jetstreamManager(connection)
    await manager.streams.delete('INFERA_REQUESTS').catch(() => {
      // The first test of this server finds none.
    })
  }
  const startWorker = async (server: NatsServer, options: Parameters<typeof newNatsWorker>[1]) => {
    await useServer(server)
    const worker = newNatsWorker(server.url, { workerId, ...options })
    cleanups.push(() => worker.destroy())
    await worker.ready()
    return worker
  }
  const startTransport = async (server: NatsServer, options: Parameters<typeof newNatsTransport>[1] = {}) => {
    const transport = newNatsTransport(server.url, options)
    cleanups.push(() => transport.close())
    await transport.ready()
    return transport
  }

  describe('our worker and a front end of the reference', () => {
    test('a stream comes as its chunks and an end with the status, and the body arrives byte for byte', async () => {
      let seen: TransportRequest | undefined
      await startWorker(plain, {
        handler: async (request) => {
          seen = request
          return { status: 200, headers: { 'x-more': '1' }, body: chunks('data: 1\n\n', 'data: [DONE]\n\n') }
        },
      })
      const frontEnd = new ReferenceFrontEnd(connection)
      frontEnd.ask(token, envelope)
      expect(await frontEnd.ended()).toEqual([
        { headers: { 'rs-type': 'data' }, text: 'data: 1\n\n' },
        { headers: { 'rs-type': 'data' }, text: 'data: [DONE]\n\n' },
        { headers: { 'rs-type': 'done', 'rs-status': '200' }, text: '' },
      ])
      expect(Buffer.from(seen?.body ?? []).toString()).toBe('{"model": "m", "room": 9223372036854775807}')
      expect(seen).toMatchObject({
        method: 'POST',
        path: '/v1/chat/completions',
        headers: { 'x-data-parallel-rank': '1', 'content-type': 'application/json' },
      })
    })

    test('what is no stream comes as one chunk', async () => {
      await startWorker(plain, {
        handler: async () => ({ status: 404, headers: {}, body: chunks('{"a"', ':1}') }),
      })
      const frontEnd = new ReferenceFrontEnd(connection)
      frontEnd.ask(token, '{"path":"/v1/x","stream":false,"headers":null,"body":{}}')
      expect(await frontEnd.ended()).toEqual([
        { headers: { 'rs-type': 'data' }, text: '{"a":1}' },
        { headers: { 'rs-type': 'done', 'rs-status': '404' }, text: '' },
      ])
    })

    test('a failure is one error frame, and so is an answer larger than a message', async () => {
      await startWorker(plain, {
        handler: async ({ path }) => {
          if (path === '/fail') throw new Error('engine is gone')
          return answer('x'.repeat(2 * 1024 * 1024))
        },
      })
      const frontEnd = new ReferenceFrontEnd(connection)
      frontEnd.ask(token, '{"path":"/fail","stream":true,"headers":null,"body":{}}')
      expect(await frontEnd.ended()).toEqual([{ headers: { 'rs-type': 'error' }, text: 'engine is gone' }])
      const second = new ReferenceFrontEnd(connection)
      second.ask(token, '{"path":"/large","stream":false,"headers":null,"body":{}}')
      const [only] = await second.ended()
      expect(second.frames).toHaveLength(1)
      expect(only?.headers).toEqual({ 'rs-type': 'error' })
      expect(only?.text).toContain('max_payload')
    })

    test('a chunk of a stream larger than a message comes in several', async () => {
      await startWorker(plain, { handler: async () => answer('x'.repeat(2_500_000)) })
      const frontEnd = new ReferenceFrontEnd(connection)
      frontEnd.ask(token, envelope)
      const frames = await frontEnd.ended()
      expect(frames.map(({ headers }) => headers['rs-type'])).toEqual([
        'data',
        'data',
        'data',
        'data',
        'done',
      ])
      expect(frames.reduce((sum, { text }) => sum + text.length, 0)).toBe(2_500_000)
    })

    test('a cancel ends the request at the engine', async () => {
      const begun = deferred<AbortSignal>()
      const worker = await startWorker(plain, {
        handler: async (_request, { signal }) => {
          begun.resolve(signal)
          await aborted(signal)
          throw new Error('aborted')
        },
      })
      const frontEnd = new ReferenceFrontEnd(connection)
      frontEnd.ask(token, envelope)
      const signal = await begun.promise
      frontEnd.cancel(token)
      await aborted(signal)
      expect(await frontEnd.ended()).toEqual([{ headers: { 'rs-type': 'error' }, text: 'request cancelled' }])
      expect(worker.runningRequests).toBe(0)
    })

    test('queued requests are answered on rs-inbox and leave the stream only when they have ended', async () => {
      const gate = deferred()
      await startWorker(streaming, {
        maxPending: 4,
        handler: async () => {
          await gate.promise
          return answer('ok')
        },
      })
      const frontEnd = new ReferenceFrontEnd(connection)
      await frontEnd.askQueued(token, envelope)
      const manager = await jetstreamManager(connection)
      const info = () => manager.consumers.info('INFERA_REQUESTS', token)
      await eventually(async () => (await info()).num_ack_pending > 0)
      const now = await info()
      expect(now).toMatchObject({ num_ack_pending: 1, num_pending: 0, push_bound: true })
      expect(now.config).toMatchObject({
        durable_name: token,
        filter_subject: `infera.req.${token}`,
        ack_policy: 'explicit',
        ack_wait: 3_600_000_000_000,
        max_deliver: 1,
        deliver_policy: 'all',
        max_ack_pending: 1_000,
      })
      const stream = await manager.streams.info('INFERA_REQUESTS')
      expect(stream.config).toMatchObject({
        subjects: ['infera.req.>'],
        retention: 'workqueue',
        storage: 'memory',
        discard: 'old',
        max_msgs: 1_000_000,
      })
      gate.resolve()
      const frames = await frontEnd.ended()
      expect(frames.map(({ headers }) => headers['rs-type'])).toEqual(['data', 'done'])
      await eventually(async () => (await info()).num_ack_pending === 0)
      expect((await manager.streams.info('INFERA_REQUESTS')).state.messages).toBe(0)
    })

    test('a worker with a queue answers front ends without the throttle too, once', async () => {
      let requests = 0
      await startWorker(streaming, {
        maxPending: 4,
        handler: async () => {
          requests += 1
          return answer('ok')
        },
      })
      const frontEnd = new ReferenceFrontEnd(connection)
      frontEnd.ask(token, envelope)
      await frontEnd.ended()
      const manager = await jetstreamManager(connection)
      await eventually(async () => (await manager.streams.info('INFERA_REQUESTS')).state.messages === 0)
      expect(requests).toBe(1)
      const types = frontEnd.frames.map(({ headers }) => headers['rs-type'] ?? 'none').sort()
      expect(types).toEqual(['data', 'done', 'none'])
    })

    test('a message without an inbox is dropped, and one that cannot be read is refused', async () => {
      let requests = 0
      await startWorker(plain, {
        handler: async () => {
          requests += 1
          return answer('ok')
        },
      })
      connection.publish(`infera.req.${token}`, envelope)
      const frontEnd = new ReferenceFrontEnd(connection)
      frontEnd.ask(token, '{"path":')
      expect(await frontEnd.ended()).toMatchObject([{ headers: { 'rs-type': 'error' } }])
      expect(requests).toBe(0)
    })
  })

  describe('our front end and a worker of the reference', () => {
    const record = () => natsRecord(undefined, workerId)
    const begin = async (
      server: NatsServer,
      onRequest: Parameters<typeof referenceWorker>[2]['onRequest'],
      options: { isQueued?: boolean; transport?: Parameters<typeof newNatsTransport>[1] } = {},
    ) => {
      await useServer(server)
      const { isQueued = false } = options
      const { cancels } = await referenceWorker(connection, token, { isQueued, onRequest })
      const transport = await startTransport(server, options.transport)
      return { cancels, transport }
    }

    test('the envelope holds what the reference reads, and the body byte for byte', async () => {
      let text = ''
      const { transport } = await begin(plain, (request) => {
        text = request.text
        request.reply('data', 'data: 1\n\n')
        request.reply('done', '', '200')
      })
      const body = '{"stream": true, "room": 9223372036854775807, "f": 1.0}'
      const request = { ...post(body), headers: { 'content-type': 'application/json', 'x-request-id': 'r' } }
      const response = await transport.send(record(), request)
      expect(response.status).toBe(200)
      expect(await textOf(response)).toBe('data: 1\n\n')
      expect(
        text.startsWith('{"path":"/v1/chat/completions","stream":true,"headers":{"x-request-id":"r"},'),
      ).toBe(true)
      expect(text.endsWith(`,"body":${body}}`)).toBe(true)
      JSON.parse(text)
    })

    test('statuses of the reference come at the end and are right all the same', async () => {
      const { transport } = await begin(plain, (request) => {
        request.reply('data', '{"error":{"message":"no"}}')
        request.reply('done', '', '422')
      })
      for (const body of ['{"stream":true}', '{}']) {
        const response = await transport.send(record(), post(body))
        expect(response.status).toBe(422)
        expect(await textOf(response)).toBe('{"error":{"message":"no"}}')
      }
    })

    test('three cancels go out when the caller leaves', async () => {
      const arrived = deferred<string>()
      const { transport, cancels } = await begin(plain, (request) => arrived.resolve(request.inbox))
      const controller = new AbortController()
      const failure = rejection(transport.send(record(), post('{}'), { signal: controller.signal }))
      const inbox = await arrived.promise
      controller.abort(new Error('left'))
      await failure
      const ofRequest = () => cancels.filter((text) => text !== '')
      await until(() => ofRequest().length === 3)
      expect(ofRequest()).toEqual([inbox, inbox, inbox])
    })

    test('a drain notice is the worker’s failure, with the notice in it', async () => {
      const { transport } = await begin(plain, (request) => request.reply('error', 'infera: worker draining'))
      const error = await rejection(transport.send(record(), post('{}')))
      expect(error).toMatchObject({ code: 'INFERA_FLEET_WORKER_FAILED' })
      expect(String(error)).toContain('infera: worker draining')
    })

    test('a request too large for one message, or not in the reference’s form, is answered before it is sent', async () => {
      let requests = 0
      const { transport } = await begin(plain, () => {
        requests += 1
      })
      const large = await transport.send(record(), post(`{"p":"${'x'.repeat(1_100_000)}"}`))
      expect(large.status).toBe(413)
      expect(await textOf(large)).toMatch(/1048576 bytes.*max_payload/)
      expect(await rejection(transport.send(record(), post('{}, "path":"/x"')))).toMatchObject({
        code: 'INFERA_FLEET_UNREACHABLE',
      })
      const get = { method: 'GET', path: '/metrics', headers: {}, body: new Uint8Array() } as const
      expect(String(await rejection(transport.send(record(), get)))).toContain('POST')
      expect(requests).toBe(0)
    })

    test('a worker that only takes queued requests gets them, throttle or not', async () => {
      for (const maxPending of [0, 2]) {
        const { transport } = await begin(
          streaming,
          (request) => {
            request.reply('data', '{}')
            request.reply('done', '', '200')
            request.acknowledge()
          },
          { isQueued: true, transport: { maxPending } },
        )
        expect(await textOf(await transport.send(record(), post('{}')))).toBe('{}')
        await connection.close()
        await until(() => connection.isClosed())
      }
    })

    test('a full queue is answered with 429 and Retry-After, and the worker hears nothing', async () => {
      const running: { reply(type: string): void; acknowledge(): void }[] = []
      const { transport } = await begin(streaming, (request) => running.push(request), {
        isQueued: true,
        transport: { maxPending: 2, readingMaxAgeMs: 1 },
      })
      const first = [1, 2].map(() => transport.send(record(), post('{}')))
      await until(() => running.length === 2)
      const refused = await transport.send(record(), post('{}'))
      expect(refused).toMatchObject({ status: 429, headers: { 'retry-after': '1' } })
      expect(await textOf(refused)).toContain('worker host:9000 request backlog over limit')
      for (const request of running) {
        request.reply('done')
        request.acknowledge()
      }
      for (const response of await Promise.all(first)) expect(response.status).toBe(200)
      expect(running).toHaveLength(2)
    })

    test('receipts of a stream that keeps a copy are no data, and the copy is taken out again', async () => {
      const { transport } = await begin(streaming, (request) => {
        setTimeout(() => {
          request.reply('data', 'data: 1\n\n')
          request.reply('done', '', '200')
        }, 20)
      })
      const manager = await jetstreamManager(connection)
      await manager.streams.add({
        name: 'INFERA_REQUESTS',
        subjects: ['infera.req.>'],
        retention: 'workqueue',
      })
      const response = await transport.send(record(), post('{"stream":true}'))
      expect(await textOf(response)).toBe('data: 1\n\n')
      await eventually(async () => (await manager.streams.info('INFERA_REQUESTS')).state.messages === 0)
    })

    test('nobody there is told at once, also where a stream takes the request', async () => {
      await useServer(plain)
      const direct = await startTransport(plain, { probeIntervalMs: 60_000 })
      expect(await rejection(direct.send(record(), post('{}')))).toMatchObject({
        code: 'INFERA_FLEET_UNREACHABLE',
        message: expect.stringContaining('no responders'),
      })
      await connection.close()
      await useServer(streaming)
      const manager = await jetstreamManager(connection)
      await manager.streams.add({
        name: 'INFERA_REQUESTS',
        subjects: ['infera.req.>'],
        retention: 'workqueue',
      })
      const beside = await startTransport(streaming, { probeIntervalMs: 60_000 })
      expect(await rejection(beside.send(record(), post('{}')))).toMatchObject({
        code: 'INFERA_FLEET_UNREACHABLE',
      })
    })

    test('a queue whose worker is gone takes nothing: the request is not done later by somebody else', async () => {
      const { transport } = await begin(streaming, () => {}, { isQueued: true, transport: { maxPending: 2 } })
      await connection.close()
      connection = await streaming.connect()
      const manager = await jetstreamManager(connection)
      await eventually(async () => !(await manager.consumers.info('INFERA_REQUESTS', token)).push_bound)
      expect(await rejection(transport.send(record(), post('{}')))).toMatchObject({
        code: 'INFERA_FLEET_UNREACHABLE',
      })
      expect((await manager.streams.info('INFERA_REQUESTS')).state.messages).toBe(0)
    })

    test('an unreadable queue refuses nobody', async () => {
      // A broker without JetStream: there is nothing to read.
      const { transport } = await begin(plain, (request) => request.reply('done', '', '200'), {
        transport: { maxPending: 1 },
      })
      expect((await transport.send(record(), post('{}'))).status).toBe(200)
    })
  })
})
