import { describe, expect, test } from 'vitest'
import type { Router } from '../../src/index.js'
import { chatBody, expectIdle, modelName, startFleet, workerRecord } from '../support/fleet.js'
import { Feed, json, silence, sse, sseOf, utf8 } from '../support/scripted-transport.js'

/** A client of a router's OpenAI face, whichever way its requests get there. */
export interface FaceClient extends AsyncDisposable {
  readonly call: (path: string, init?: RequestInit) => Promise<Response>
}

const chatPath = '/v1/chat/completions'
const stream = 'text/event-stream; charset=utf-8'
const failure = new Error('the worker broke')

/** An error's `error` object. */
async function errorOf(response: Response): Promise<Record<string, unknown>> {
  return ((await response.json()) as { error: Record<string, unknown> }).error
}

/** A body that comes in these chunks, and of which nobody states the length. */
function streamed(chunks: readonly (string | Uint8Array)[]): RequestInit {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(typeof chunk === 'string' ? utf8(chunk) : chunk)
      controller.close()
    },
  })
  return { method: 'POST', body, duplex: 'half' }
}

/**
 * What every way to a router's OpenAI face keeps to.
 * @param options.checksUrls something before the router answers malformed URLs
 */
export function openAiFaceContract(
  name: string,
  open: (router: Router) => Promise<FaceClient>,
  { checksUrls = false }: { readonly checksUrls?: boolean } = {},
): void {
  const post = (body: unknown = chatBody(), more: RequestInit = {}): RequestInit => ({
    method: 'POST',
    body: typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
    ...more,
  })

  describe(`${name}: models`, () => {
    test('are listed, and found by names with a slash', async () => {
      await using fleet = await startFleet({}, [
        workerRecord('a'),
        workerRecord('b', { model_name: 'org/big' }),
        workerRecord('c', { model_name: 'gone', status: 'draining' }),
      ])
      await using client = await open(fleet.router)
      const model = (id: string) => ({ id, object: 'model', created: expect.any(Number), owned_by: 'infera' })
      const get = async (path: string) => (await client.call(path)).json()
      expect(await get('/v1/models')).toEqual({ object: 'list', data: [model(modelName), model('org/big')] })
      expect(await get('/v1/models?limit=1')).toMatchObject({ object: 'list' })
      expect(await get('/v1/models/org%2Fbig')).toEqual(model('org/big'))
      expect(await get('/v1/models/org/big')).toEqual(model('org/big'))
    })

    test('answer HEAD with the head of GET', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      const response = await client.call('/v1/models', { method: 'HEAD' })
      expect(response.status).toBe(200)
      expect(Number(response.headers.get('content-length'))).toBeGreaterThan(50)
      expect(await response.text()).toBe('')
    })
  })

  describe(`${name}: beneath another base path`, () => {
    test('everything is found there, workers are asked as ever, and nothing is where it was', async () => {
      await using fleet = await startFleet({ basePath: '/llm/v1' })
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => json({ ok: true }))
      expect(await (await client.call('/llm/v1/models')).json()).toMatchObject({ object: 'list' })
      expect(await (await client.call(`/llm/v1/models/${modelName}`)).json()).toMatchObject({ id: modelName })
      expect(await (await client.call('/llm/v1/chat/completions?a=1', post())).json()).toEqual({ ok: true })
      expect(fleet.transport.calls[0]?.request.path).toBe(chatPath)
      expect((await client.call('/llm/v1/chat/completions')).status).toBe(405)
      for (const path of [chatPath, '/llm/v1', '/llm/v1x/models', '/llm/models', '/LLM/v1/models']) {
        const response = await client.call(path, post())
        expect([path, response.status]).toEqual([path, 404])
        expect((await errorOf(response)).message).toBe(
          `there is no ${path}; inference is at /llm/v1/chat/completions and /llm/v1/completions`,
        )
      }
      expectIdle(fleet.router)
    })

    test('which may be none', async () => {
      await using fleet = await startFleet({ basePath: '' })
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => json({ ok: true }))
      expect(await (await client.call('/models')).json()).toMatchObject({ object: 'list' })
      expect((await client.call('/chat/completions', post())).status).toBe(200)
      expect(fleet.transport.calls[0]?.request.path).toBe(chatPath)
    })

    test('which may change', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.router.update({ basePath: '/new' })
      expect((await client.call('/v1/models')).status).toBe(404)
      expect((await client.call('/new/models')).status).toBe(200)
    })
  })

  describe(`${name}: answers`, () => {
    test('in one piece are the worker’s, and it got the client’s bytes', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => json('{ "choices" : [] }'))
      const sent = JSON.stringify(chatBody(), undefined, 3)
      const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
      const response = await client.call(
        chatPath,
        post(sent, { headers: { traceparent, authorization: 'Bearer secret' } }),
      )
      expect(response.status).toBe(200)
      expect(response.headers.get('content-type')).toBe('application/json')
      expect(await response.text()).toBe('{ "choices" : [] }')
      const [call] = fleet.transport.calls
      expect(call?.text).toBe(sent)
      expect(call?.request.headers.traceparent).toBe(traceparent)
      expect(call?.request.headers.authorization).toBeUndefined()
      expect(call?.ending).toBe('answered')
      expectIdle(fleet.router)
    })

    test('to a request that comes in pieces are the same', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => json({}))
      const bytes = utf8(JSON.stringify(chatBody({ user: '長江 🐈‍⬛' })))
      const pieces = Array.from({ length: Math.ceil(bytes.length / 7) }, (_, index) =>
        bytes.slice(index * 7, index * 7 + 7),
      )
      expect((await client.call(chatPath, streamed(pieces))).status).toBe(200)
      expect(fleet.transport.calls[0]?.request.body).toEqual(Buffer.from(bytes))
    })

    for (const ending of ['\n', '\r\n']) {
      test(`in events ended by ${JSON.stringify(ending)} arrive byte for byte wherever they are split`, async () => {
        await using fleet = await startFleet()
        await using client = await open(fleet.router)
        const event = 'data: {"choices":[{"delta":{"content":"長江 🐈‍⬛"}}]}'
        const bytes = Buffer.from([event, '', 'data: [DONE]', '', ''].join(ending))
        for (let at = 1; at < bytes.length; at += 3) {
          // Views of one buffer, as a socket's reader makes them.
          fleet.transport.script('*', () => sse(bytes.subarray(0, at), bytes.subarray(at)))
          const response = await client.call(chatPath, post(chatBody({ stream: true })))
          expect(Buffer.from(await response.arrayBuffer()).equals(bytes), `split at ${at}`).toBe(true)
          expect(response.headers.get('content-type')).toBe(stream)
          expect(response.headers.get('cache-control')).toBe('no-cache')
          expect(response.headers.get('x-accel-buffering')).toBe('no')
        }
        expectIdle(fleet.router)
      })
    }

    test('come event by event, not when the stream ends', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      const feed = new Feed().push('data: 0\n\n')
      fleet.transport.script('*', () => sseOf(feed))
      const response = await client.call(chatPath, post(chatBody({ stream: true })))
      const seen: string[] = []
      for await (const part of response.body as ReadableStream<Uint8Array>) {
        seen.push(Buffer.from(part).toString())
        if (seen.length < 3) feed.push(`data: ${seen.length}\n\n`)
        else feed.end()
      }
      expect(seen).toEqual(['data: 0\n\n', 'data: 1\n\n', 'data: 2\n\n'])
      expectIdle(fleet.router)
    })

    test('without a body have none', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => ({ status: 204, headers: {}, body: new Feed().end() }))
      const response = await client.call(chatPath, post())
      expect(response.status).toBe(204)
      expect(await response.text()).toBe('')
      expectIdle(fleet.router)
    })

    test('that HTTP could not carry are mended, and nothing stays booked', async () => {
      await using fleet = await startFleet({ requestRetriesMax: 0 })
      await using client = await open(fleet.router)
      const headers = { 'content-type': 'a\nb', 'retry-after': '7' }
      fleet.transport.script('*', () => ({ status: 999, headers, body: new Feed().push('odd').end() }))
      const response = await client.call(chatPath, post())
      expect(response.status).toBe(502)
      expect(response.headers.get('content-type')).toBeNull()
      expect(response.headers.get('retry-after')).toBe('7')
      expect(await response.text()).toBe('odd')
      expectIdle(fleet.router)
    })
  })

  describe(`${name}: a worker that fails`, () => {
    test('before its first byte goes unseen, since another one answers', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport
        .script('a', () => Promise.reject(failure))
        .script('b', () => sseOf(new Feed().break(failure)))
        .script('c', () => sse('data: [DONE]\n\n'))
      const response = await client.call(chatPath, post(chatBody({ stream: true })))
      expect(response.status).toBe(200)
      expect(await response.text()).toBe('data: [DONE]\n\n')
      expect(fleet.transport.workerIds).toEqual(['a', 'b', 'c'])
      expectIdle(fleet.router)
    })

    test('as all others do is a 502 that names it', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => Promise.reject(failure))
      const response = await client.call(chatPath, post())
      expect(response.status).toBe(502)
      expect(await response.json()).toMatchObject({
        error: { type: 'server_error', code: 'workers_failed' },
        infera: { worker_id: 'c' },
      })
      expectIdle(fleet.router)
    })

    test.each([
      ['between events', 'data: 1\n\n', 'data: 1\n\n'],
      ['within an event', 'data: {"ch', 'data: {"ch\n\n'],
    ])('%s ends the stream with an event that says so', async (_, sent, before) => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => sseOf(new Feed().push(sent).break(failure)))
      const response = await client.call(chatPath, post(chatBody({ stream: true })))
      const text = await response.text()
      expect(text.startsWith(`${before}data: {"error":`)).toBe(true)
      expect(text.endsWith('}\n\n')).toBe(true)
      expect(JSON.parse(text.slice(before.length + 'data: '.length))).toMatchObject({
        error: { type: 'server_error', code: 'worker_failed_mid_stream' },
        infera: { worker_id: 'a' },
      })
      expectIdle(fleet.router)
    })

    test('after the end mark takes nothing from the client', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => sseOf(new Feed().push('data: [DONE]\n\n').break(failure)))
      const response = await client.call(chatPath, post(chatBody({ stream: true })))
      expect(await response.text()).toBe('data: [DONE]\n\n')
    })

    test.each([
      ['an answer in one piece', { 'content-type': 'application/json' }],
      ['a compressed stream', { 'content-type': stream, 'content-encoding': 'x-own' }],
    ])('within %s cuts it off', async (_, headers) => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      const feed = new Feed().push('{"choices"')
      fleet.transport.script('*', () => ({ status: 200, headers, body: feed }))
      const response = await client.call(chatPath, post())
      const reader = (response.body as ReadableStream<Uint8Array>).getReader()
      expect(Buffer.from((await reader.read()).value as Uint8Array).toString()).toBe('{"choices"')
      feed.break(failure)
      await expect(reader.read()).rejects.toThrow()
      expectIdle(fleet.router)
    })
  })

  describe(`${name}: what cannot be answered`, () => {
    test.each([
      ['an empty body', '', null],
      ['half an object', '{"model":', null],
      ['an array', '[]', null],
      ['invalid UTF-8', Uint8Array.of(0x7b, 0xff, 0x7d), null],
      ['no model', { ...chatBody(), model: undefined }, 'model'],
      ['no messages', { model: modelName }, 'messages'],
      ['a stream that is neither', chatBody({ stream: 'yes' }), 'stream'],
    ])('%s is a 400', async (_, body, param) => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      const response = await client.call(chatPath, post(body))
      expect(response.status).toBe(400)
      expect(response.headers.get('content-type')).toBe('application/json')
      expect(await errorOf(response)).toMatchObject({
        type: 'invalid_request_error',
        param,
        code: 'invalid_request',
      })
      expect(fleet.transport.calls).toEqual([])
      expectIdle(fleet.router)
    })

    const unanswerable: [string, string, number, string, string | null][] = [
      ['POST', '/v1/embeddings', 404, 'not_found', null],
      ['GET', '/', 404, 'not_found', null],
      ['GET', '/v1/models/other', 404, 'not_found', null],
      ['GET', '/v1/models/%E0%A4', 404, 'not_found', null],
      ['GET', chatPath, 405, 'method_not_allowed', 'POST'],
      ['DELETE', '/v1/models', 405, 'method_not_allowed', 'GET, HEAD'],
    ]
    test.each(unanswerable.filter(([, path]) => !(checksUrls && path.includes('%E0'))))(
      '%s %s is a %i',
      async (method, path, status, code, allow) => {
        await using fleet = await startFleet()
        await using client = await open(fleet.router)
        const response = await client.call(path, { method })
        expect(response.status).toBe(status)
        expect(response.headers.get('allow')).toBe(allow)
        expect(response.headers.get('x-request-id')).toMatch(/^[0-9a-f]{32}$/)
        expect(await errorOf(response)).toMatchObject({ type: 'invalid_request_error', code })
      },
    )

    test('a model that nobody serves is a 404, one that nobody can take now a 503 with Retry-After', async () => {
      await using fleet = await startFleet({}, [workerRecord('a', { status: 'draining' })])
      await using client = await open(fleet.router)
      const unknown = await client.call(chatPath, post(chatBody({ model: 'other' })))
      expect([unknown.status, (await errorOf(unknown)).code]).toEqual([404, 'model_not_found'])
      const busy = await client.call(chatPath, post())
      expect([busy.status, (await errorOf(busy)).code]).toEqual([503, 'no_worker'])
      expect(busy.headers.get('retry-after')).toBe('1')
    })

    test('a router that has closed is a 503', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      await fleet.router.close()
      const response = await client.call(chatPath, post())
      expect([response.status, (await errorOf(response)).code]).toEqual([503, 'shutting_down'])
    })

    test('a body beyond bodyBytesMax is a 413, stated or not, and the last byte before is none', async () => {
      const bodyBytesMax = 1000
      await using fleet = await startFleet({ bodyBytesMax })
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => json({}))
      const least = JSON.stringify(chatBody({ user: '' })).length
      const sized = (sizeBytes: number) => JSON.stringify(chatBody({ user: 'x'.repeat(sizeBytes - least) }))
      for (const init of [post, (body: string) => streamed([body.slice(0, 9), body.slice(9)])]) {
        const passed = await client.call(chatPath, init(sized(bodyBytesMax)))
        expect([passed.status, await passed.text()]).toEqual([200, '{}'])
        const response = await client.call(chatPath, init(sized(bodyBytesMax + 1)))
        expect(response.status).toBe(413)
        expect(response.headers.get('x-request-id')).toMatch(/^[0-9a-f]{32}$/)
        expect((await errorOf(response)).code).toBe('request_too_large')
      }
      expect(fleet.transport.calls).toHaveLength(2)
      expectIdle(fleet.router)
    })
  })

  describe(`${name}: the request id`, () => {
    test('is the client’s own where it can be passed on, and the worker is told', async () => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => json({}))
      const idsOf = async (headers: Record<string, string>) => {
        const response = await client.call(chatPath, post(chatBody(), { headers }))
        expect(fleet.transport.calls.at(-1)?.request.headers['x-request-id']).toBe(
          response.headers.get('x-request-id'),
        )
        return [response.headers.get('x-request-id'), response.headers.get('x-infera-request-id')]
      }
      expect(await idsOf({ 'x-request-id': 'mine' })).toEqual(['mine', 'mine'])
      expect(await idsOf({ 'x-request-id': 'b', 'x-infera-request-id': 'a' })).toEqual(['a', 'a'])
      const [made] = await idsOf({ 'x-request-id': 'not usable' })
      expect(made).toMatch(/^[0-9a-f]{32}$/)
    })
  })

  describe(`${name}: a client that leaves is cancelled at its worker, and nothing stays booked,`, () => {
    test.each([false, true])('before the answer, stream %s', async (isStream) => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', silence)
      const leaving = new AbortController()
      const init = post(chatBody({ stream: isStream }), { signal: leaving.signal })
      const response = client.call(chatPath, init)
      const call = await fleet.transport.call(0)
      leaving.abort()
      await expect(response).rejects.toThrow(expect.objectContaining({ name: 'AbortError' }))
      expect(await call.ended).toBe('cancelled')
      expect(fleet.transport.calls).toHaveLength(1)
      expectIdle(fleet.router)
    })

    test.each(['abort', 'cancel'] as const)('in the middle of a stream, by %s', async (how) => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n')))
      const leaving = new AbortController()
      const init = post(chatBody({ stream: true }), { signal: leaving.signal })
      const response = await client.call(chatPath, init)
      const reader = (response.body as ReadableStream<Uint8Array>).getReader()
      await reader.read()
      const call = await fleet.transport.call(0)
      const next = reader.read()
      if (how === 'abort') {
        leaving.abort()
        await expect(next).rejects.toThrow(expect.objectContaining({ name: 'AbortError' }))
      } else {
        await reader.cancel()
        expect((await next).done).toBe(true)
      }
      expect(await call.ended).toBe('cancelled')
      expectIdle(fleet.router)
    })

    test.each(['abort', 'cancel'] as const)('with an answer of which it read nothing, by %s', async (how) => {
      await using fleet = await startFleet()
      await using client = await open(fleet.router)
      fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n')))
      const leaving = new AbortController()
      const init = post(chatBody({ stream: true }), { signal: leaving.signal })
      const { body } = await client.call(chatPath, init)
      const call = await fleet.transport.call(0)
      expect(call.ending).toBeUndefined()
      if (how === 'abort') leaving.abort()
      else await body?.cancel()
      expect(await call.ended).toBe('cancelled')
      expectIdle(fleet.router)
    })
  })
}
