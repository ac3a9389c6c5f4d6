import { createHash, randomBytes } from 'node:crypto'
import { afterEach, describe, expect, test } from 'vitest'
import {
  type RequestTransport,
  TransportError,
  type TransportRequest,
  type WorkerRecord,
  type WorkerRequestHandler,
} from '../../src/index.js'
import { answer, bytesOf, chunks, post, textOf, utf8 } from '../support/bodies.js'
import { aborted, deferred, rejection } from '../support/wait.js'

/** One transport and one worker that it reaches. */
export interface RequestTransportHarness {
  readonly transport: RequestTransport
  readonly worker: WorkerRecord
  /** The worker dies: no goodbye, nothing listens any more. */
  kill(): Promise<void>
  /** Ends everything. */
  dispose(): Promise<void>
}

/** What every `RequestTransport` does. */
export function describeRequestTransport(
  name: string,
  create: (handler: WorkerRequestHandler) => Promise<RequestTransportHarness>,
): void {
  describe(`${name} request transport`, () => {
    let harness: RequestTransportHarness | undefined
    const start = async (handler: WorkerRequestHandler) => {
      harness = await create(handler)
      const { transport, worker } = harness
      return {
        ...harness,
        send: (request: TransportRequest, options?: { signal?: AbortSignal }) =>
          transport.send(worker, request, options),
      }
    }
    afterEach(async () => {
      await harness?.dispose()
      harness = undefined
    })

    test('carries method, path, headers and body there, status, headers and body back', async () => {
      let seen: TransportRequest | undefined
      const { send } = await start(async (request) => {
        seen = request
        return {
          status: 200,
          headers: { 'content-type': 'text/x-test', 'x-more': 'a, b' },
          body: chunks('pong'),
        }
      })
      const response = await send({
        method: 'POST',
        path: '/v1/chat/completions?x=1',
        headers: { 'content-type': 'application/json', 'x-request-id': 'r-1', traceparent: '00-1-2-01' },
        body: utf8('{"ping":"🦄"}'),
      })
      expect(response.status).toBe(200)
      expect(response.headers).toMatchObject({ 'content-type': 'text/x-test', 'x-more': 'a, b' })
      expect(await textOf(response)).toBe('pong')
      expect(seen).toMatchObject({ method: 'POST', path: '/v1/chat/completions?x=1' })
      expect(seen?.headers).toMatchObject({
        'content-type': 'application/json',
        'x-request-id': 'r-1',
        traceparent: '00-1-2-01',
      })
      expect(Buffer.from(seen?.body ?? []).toString()).toBe('{"ping":"🦄"}')
    })

    test('carries a GET without a body, and an empty answer', async () => {
      let seen: TransportRequest | undefined
      const { send } = await start(async (request) => {
        seen = request
        return { status: 204, headers: {}, body: chunks() }
      })
      const response = await send({ method: 'GET', path: '/metrics', headers: {}, body: new Uint8Array() })
      expect(response.status).toBe(204)
      expect(await textOf(response)).toBe('')
      expect(seen).toMatchObject({ method: 'GET', path: '/metrics' })
      expect(seen?.body.byteLength).toBe(0)
    })

    test('status and headers arrive before the first byte, and every chunk when it is produced', async () => {
      const gates = [deferred(), deferred()]
      const { send } = await start(async () => ({
        status: 200,
        headers: { 'content-type': 'text/event-stream' },
        body: (async function* () {
          for (const [index, gate] of gates.entries()) {
            await gate.promise
            yield utf8(`data: ${index}\n\n`)
          }
        })(),
      }))
      const response = await send(post('{}'))
      expect(response.headers['content-type']).toBe('text/event-stream')
      const body = response.body[Symbol.asyncIterator]()
      for (const [index, gate] of gates.entries()) {
        gate.resolve()
        const step = await body.next()
        expect(Buffer.from(step.value ?? []).toString()).toBe(`data: ${index}\n\n`)
      }
      expect((await body.next()).done).toBe(true)
    })

    test('a body split at any byte arrives intact', async () => {
      const whole = Buffer.from('data: {"delta":"né🦄"}\n\ndata: [DONE]\n\n')
      const { send } = await start(async (request) => {
        const at = Number(Buffer.from(request.body).toString())
        return { status: 200, headers: {}, body: chunks(whole.subarray(0, at), whole.subarray(at)) }
      })
      for (let at = 0; at <= whole.byteLength; at++) {
        expect(await bytesOf(await send(post(String(at))))).toEqual(whole)
      }
    })

    test('a request of 64 MiB arrives byte for byte', async () => {
      const { send } = await start(async (request) =>
        answer(`${request.body.byteLength} ${createHash('sha256').update(request.body).digest('hex')}`),
      )
      const body = Buffer.alloc(64 * 1024 * 1024, randomBytes(1_000_003))
      const digest = createHash('sha256').update(body).digest('hex')
      expect(await textOf(await send(post(body)))).toBe(`${body.byteLength} ${digest}`)
    })

    test('a response of 24 MiB in one chunk arrives byte for byte', async () => {
      const body = Buffer.alloc(24 * 1024 * 1024, randomBytes(1_000_003))
      const { send } = await start(async () => ({ status: 200, headers: {}, body: chunks(body) }))
      expect((await bytesOf(await send(post('{}')))).equals(body)).toBe(true)
    })

    test.each([400, 404, 429, 500, 503])(
      'an engine that answers %i is answered with that',
      async (status) => {
        const { send } = await start(async () => answer(`{"error":"${status}"}`, status))
        const response = await send(post('{}'))
        expect(response.status).toBe(status)
        expect(await textOf(response)).toBe(`{"error":"${status}"}`)
      },
    )

    test('an encoded body is passed on as it is, with its content-encoding and without its content-length', async () => {
      const encoded = Buffer.from('1f8b0800000000000003030000000000000000000000', 'hex')
      let accepted: string | undefined
      const { send } = await start(async (request) => {
        accepted = request.headers['accept-encoding']
        const headers = { 'content-encoding': 'gzip', 'content-length': String(encoded.byteLength) }
        return { status: 200, headers, body: chunks(encoded) }
      })
      const response = await send({ ...post('{}'), headers: { 'accept-encoding': 'identity' } })
      expect(accepted).toBe('identity')
      expect(response.headers['content-encoding']).toBe('gzip')
      expect(response.headers).not.toHaveProperty('content-length')
      expect(response.headers).not.toHaveProperty('transfer-encoding')
      expect(response.headers).not.toHaveProperty('connection')
      expect(await bytesOf(response)).toEqual(encoded)
    })

    test('abort before the headers rejects with the reason and is seen by the worker', async () => {
      const arrived = deferred<AbortSignal>()
      const { send } = await start(async (_request, { signal }) => {
        arrived.resolve(signal)
        await aborted(signal)
        throw new Error('aborted')
      })
      const controller = new AbortController()
      const failure = rejection(send(post('{}'), { signal: controller.signal }))
      const atWorker = await arrived.promise
      const reason = new Error('client left')
      controller.abort(reason)
      expect(await failure).toBe(reason)
      await aborted(atWorker)
    })

    test('abort in the middle of the body throws the reason and is seen by the worker', async () => {
      const atWorker = deferred<AbortSignal>()
      const { send } = await start(async (_request, { signal }) => {
        atWorker.resolve(signal)
        return { status: 200, headers: {}, body: endless(signal) }
      })
      const controller = new AbortController()
      const response = await send(post('{}'), { signal: controller.signal })
      const body = response.body[Symbol.asyncIterator]()
      await body.next()
      const reason = new Error('client left')
      controller.abort(reason)
      const drained = (async () => {
        while (!(await body.next()).done);
      })()
      expect(await rejection(drained)).toBe(reason)
      await aborted(await atWorker.promise)
    })

    test('a signal that is aborted already sends nothing', async () => {
      let requests = 0
      const { send } = await start(async () => {
        requests += 1
        return answer('ok')
      })
      const reason = new Error('too late')
      expect(await rejection(send(post('{}'), { signal: AbortSignal.abort(reason) }))).toBe(reason)
      await textOf(await send(post('{}')))
      expect(requests).toBe(1)
    })

    test('an abort after the end changes nothing', async () => {
      const { send } = await start(async () => answer('ok'))
      const controller = new AbortController()
      expect(await textOf(await send(post('{}'), { signal: controller.signal }))).toBe('ok')
      controller.abort()
      expect(await textOf(await send(post('{}')))).toBe('ok')
    })

    test('a reader that breaks off cancels the request at the worker', async () => {
      const atWorker = deferred<AbortSignal>()
      const { send } = await start(async (_request, { signal }) => {
        atWorker.resolve(signal)
        return { status: 200, headers: {}, body: endless(signal) }
      })
      for await (const chunk of (await send(post('{}'))).body) {
        expect(chunk.byteLength).toBeGreaterThan(0)
        break
      }
      await aborted(await atWorker.promise)
    })

    test('a worker that dies before the headers is unreachable', async () => {
      const arrived = deferred()
      const { send, kill } = await start(async (_request, { signal }) => {
        arrived.resolve()
        await aborted(signal)
        throw new Error('dying')
      })
      const failure = rejection(send(post('{}')))
      await arrived.promise
      await kill()
      expect(codeOf(await failure)).toBe('INFERA_FLEET_UNREACHABLE')
      expect(codeOf(await rejection(send(post('{}'))))).toBe('INFERA_FLEET_UNREACHABLE')
    })

    test('a worker that dies in the middle of the body breaks it, after what had arrived', async () => {
      const { send, kill } = await start(async (_request, { signal }) => ({
        status: 200,
        headers: {},
        body: (async function* () {
          yield utf8('begun')
          await aborted(signal)
        })(),
      }))
      const response = await send(post('{}'))
      const body = response.body[Symbol.asyncIterator]()
      expect(Buffer.from((await body.next()).value ?? []).toString()).toBe('begun')
      await kill()
      expect(codeOf(await rejection(body.next()))).toBe('INFERA_FLEET_BROKEN')
    })

    test('200 requests at once are all in flight at the worker and keep their answers apart', async () => {
      const everybody = deferred()
      let inFlight = 0
      const { send } = await start(async (request) => {
        inFlight += 1
        if (inFlight === 200) everybody.resolve()
        await everybody.promise
        const text = Buffer.from(request.body).toString()
        return { status: 200, headers: {}, body: chunks(`${text}:`, text.repeat(100)) }
      })
      const texts = await Promise.all(
        Array.from({ length: 200 }, async (_, index) => textOf(await send(post(`<${index}>`)))),
      )
      expect(texts).toEqual(
        Array.from({ length: 200 }, (_, index) => `<${index}>:${`<${index}>`.repeat(100)}`),
      )
    })

    test('close lets running requests end and takes no further one', async () => {
      const arrived = deferred()
      const gate = deferred()
      const { send, transport } = await start(async () => {
        arrived.resolve()
        await gate.promise
        return answer('done')
      })
      const running = send(post('{}'))
      let isClosed = false
      await arrived.promise
      const closing = transport.close().then(() => {
        isClosed = true
      })
      expect(codeOf(await rejection(send(post('{}'))))).toBe('INFERA_FLEET_CLOSED')
      expect(isClosed).toBe(false)
      gate.resolve()
      expect(await textOf(await running)).toBe('done')
      await closing
      await transport.close()
    })
  })
}

async function* endless(signal: AbortSignal): AsyncGenerator<Uint8Array> {
  while (!signal.aborted) {
    yield utf8('token ')
    await new Promise((resolve) => setImmediate(resolve))
  }
}

export function codeOf(error: unknown): string | undefined {
  return error instanceof TransportError ? error.code : undefined
}
