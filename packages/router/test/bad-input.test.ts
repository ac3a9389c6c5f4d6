import { describe, expect, test } from 'vitest'
import { chatBody, expectIdle, modelName, startFleet, workerRecord } from './support/fleet.js'
import { type HttpAnswer, HttpFace, rawPost, readToEnd } from './support/http.js'
import { json } from './support/scripted-transport.js'

interface ErrorBody {
  readonly error: {
    readonly message: string
    readonly type: string
    readonly param: string | null
    readonly code: string
  }
}

const errorOf = ({ body }: Pick<HttpAnswer, 'body'>) => (JSON.parse(body.toString()) as ErrorBody).error
const chatWith = (more: object) => JSON.stringify({ ...chatBody(), ...more })
const completion = (more: object) => JSON.stringify({ model: modelName, ...more })
const chatPath = '/v1/chat/completions'
const completionPath = '/v1/completions'

/** What was sent, the field that is named, and words of the sentence that says what to send. */
const badBodies: [
  name: string,
  path: string,
  body: string | Uint8Array,
  param: string | null,
  says: RegExp,
][] = [
  ['nothing', chatPath, '', null, /empty; send a JSON object/],
  ['blanks', chatPath, ' \n ', null, /empty; send a JSON object/],
  ['half an array', chatPath, '[', null, /not valid JSON; send a JSON object/],
  ['half an object', chatPath, '{"model":"tiny","messages":[', null, /not valid JSON; send a JSON object/],
  ['null', chatPath, 'null', null, /must be a JSON object/],
  ['an array', chatPath, '[]', null, /must be a JSON object/],
  ['a string', chatPath, '"hello"', null, /must be a JSON object/],
  ['a number', completionPath, '5', null, /must be a JSON object/],
  ['invalid UTF-8', chatPath, Uint8Array.of(0x7b, 0xff, 0xfe, 0x7d), null, /not valid UTF-8; send JSON/],
  ['no model', chatPath, chatWith({ model: undefined }), 'model', /send the name of a model/],
  ['model null', chatPath, chatWith({ model: null }), 'model', /send the name of a model/],
  ['model a number', chatPath, chatWith({ model: 7 }), 'model', /must be a string.*not 7/],
  ['model empty', chatPath, chatWith({ model: '' }), 'model', /send the name of a model/],
  ['no messages', chatPath, chatWith({ messages: undefined }), 'messages', /send an array such as/],
  ['messages a string', chatPath, chatWith({ messages: 'hi' }), 'messages', /must be an array of messages/],
  ['messages an object', chatPath, chatWith({ messages: {} }), 'messages', /must be an array of messages/],
  ['messages empty', chatPath, chatWith({ messages: [] }), 'messages', /at least one message/],
  [
    'a message that is a number',
    chatPath,
    chatWith({ messages: [1] }),
    'messages[0]',
    /must be an object with 'role'/,
  ],
  [
    'a message without role',
    chatPath,
    chatWith({ messages: [{ role: 'user', content: 'a' }, { content: 'b' }] }),
    'messages[1].role',
    /must be a string such as 'user'/,
  ],
  [
    'content a number',
    chatPath,
    chatWith({ messages: [{ role: 'user', content: 5 }] }),
    'messages[0].content',
    /must be a string, an array of content parts, or null, not 5/,
  ],
  [
    'a content part that is a number',
    chatPath,
    chatWith({ messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }, 1] }] }),
    'messages[0].content[1]',
    /must be an object with 'type'/,
  ],
  ['no prompt', completionPath, completion({}), 'prompt', /send a string or an array of token ids/],
  [
    'prompt an object',
    completionPath,
    completion({ prompt: {} }),
    'prompt',
    /must be a string.*not an object/,
  ],
  ['prompt empty', completionPath, completion({ prompt: [] }), 'prompt', /must not be an empty array/],
  [
    'a negative token',
    completionPath,
    completion({ prompt: [-1] }),
    'prompt',
    /token ids \(integers from 0\)/,
  ],
  [
    'half a token',
    completionPath,
    completion({ prompt: [1, 1.5] }),
    'prompt',
    /token ids \(integers from 0\)/,
  ],
  ['stream "yes"', chatPath, chatWith({ stream: 'yes' }), 'stream', /must be true or false/],
  [
    'stream 1',
    completionPath,
    completion({ prompt: 'a', stream: 1 }),
    'stream',
    /must be true or false, not 1/,
  ],
  ['max_tokens "x"', chatPath, chatWith({ max_tokens: 'x' }), 'max_tokens', /must be an integer, 0 or more/],
  [
    'max_tokens -1',
    chatPath,
    chatWith({ max_tokens: -1 }),
    'max_tokens',
    /must be an integer, 0 or more, not -1/,
  ],
  ['n 0', chatPath, chatWith({ n: 0 }), 'n', /must be an integer, 1 or more, not 0/],
  ['temperature "hot"', chatPath, chatWith({ temperature: 'hot' }), 'temperature', /must be a number/],
  ['stop 5', chatPath, chatWith({ stop: 5 }), 'stop', /must be a string or an array of strings/],
  ['tools {}', chatPath, chatWith({ tools: {} }), 'tools', /must be an array of objects/],
]

describe('what no worker could answer is refused with what to send, and reaches none', () => {
  test.each(badBodies)('%s', async (_, path, body, param, says) => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const answer = await face.post(body, { path, headers: { 'x-request-id': 'mine-1' } })
    expect(answer.status).toBe(400)
    expect(answer.headers['content-type']).toBe('application/json')
    expect(answer.headers['x-request-id']).toBe('mine-1')
    expect(answer.headers['x-infera-request-id']).toBe('mine-1')
    const error = errorOf(answer)
    expect(error).toEqual({
      message: error.message,
      type: 'invalid_request_error',
      param,
      code: 'invalid_request',
    })
    expect(error.message).toMatch(says)
    expect(fleet.transport.calls).toEqual([])
    expect(fleet.router.stats().picks).toEqual([])
    expectIdle(fleet.router)
  })

  test('a connection that sent something bad serves the next request', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => json({ ok: true }))
    const socket = await face.socket()
    socket.write(rawPost('[') + rawPost(JSON.stringify(chatBody()), ['connection: close']))
    const text = await readToEnd(socket)
    expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 400', 'HTTP/1.1 200'])
  })
})

describe('the model', () => {
  test('unknown to everybody is a 404', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const answer = await face.post(chatWith({ model: 'other' }))
    expect(answer.status).toBe(404)
    expect(errorOf(answer)).toEqual({
      message: "model 'other' is not served here; GET /v1/models lists those that are",
      type: 'invalid_request_error',
      param: 'model',
      code: 'model_not_found',
    })
    expect(answer.headers['x-request-id']).toMatch(/^[0-9a-f]{32}$/)
    expect(fleet.transport.calls).toEqual([])
  })

  test.each([
    ['no worker', []],
    ['a draining worker', [workerRecord('a', { status: 'draining' })]],
    ['a dead worker', [workerRecord('a', { status: 'dead' })]],
  ])('with %s is a 503 that says when to try again', async (_, records) => {
    await using fleet = await startFleet({}, records)
    await using face = await new HttpFace(fleet.router).listen()
    const answer = await face.post()
    expect(answer.status).toBe(503)
    expect(answer.headers['retry-after']).toBe('1')
    expect(answer.headers['x-request-id']).toMatch(/^[0-9a-f]{32}$/)
    expect(errorOf(answer)).toMatchObject({ type: 'server_error', param: null, code: 'no_worker' })
    expect(errorOf(answer).message).toContain(`model '${modelName}'`)
    expectIdle(fleet.router)
  })

  test('asked for more often than requestsInFlightMax allows is a 429', async () => {
    await using fleet = await startFleet({ requestsInFlightMax: 1 })
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => new Promise(() => {}))
    const caller = new AbortController()
    const running = fleet.router.dispatch({ path: chatPath, body: chatBody() }, { signal: caller.signal })
    const answer = await face.post()
    expect(answer.status).toBe(429)
    expect(answer.headers['retry-after']).toBe('1')
    expect(errorOf(answer)).toMatchObject({ type: 'server_error', code: 'overloaded' })
    caller.abort(new Error('enough'))
    await expect(running).rejects.toThrow('enough')
    expectIdle(fleet.router)
  })
})

describe('paths and methods', () => {
  test.each([
    ['POST', '/v1/embeddings', 404, 'not_found'],
    ['POST', '/', 404, 'not_found'],
    ['POST', '//', 404, 'not_found'],
    ['GET', '/v1/models/other', 404, 'not_found'],
    ['GET', '/v1/models/%E0%A4', 404, 'not_found'],
    ['GET', chatPath, 405, 'method_not_allowed'],
    ['DELETE', '/v1/models', 405, 'method_not_allowed'],
  ])('%s %s is %i', async (method, path, status, code) => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const answer = await fetch(`http://127.0.0.1:${face.port}${path}`, { method })
    expect(answer.status).toBe(status)
    expect((await answer.json()) as ErrorBody).toMatchObject({
      error: { type: 'invalid_request_error', code },
    })
    expect(answer.headers.get('allow')).toBe(
      status === 405 ? (path === chatPath ? 'POST' : 'GET, HEAD') : null,
    )
    expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f]{32}$/)
    expect(fleet.transport.calls).toEqual([])
  })

  test('a path far too long is not repeated in whole', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const answer = await face.post('', { path: `/${'x'.repeat(8_000)}` })
    expect(answer.status).toBe(404)
    expect(answer.body.length).toBeLessThan(600)
  })

  test('models that can be asked for are listed', async () => {
    await using fleet = await startFleet({}, [
      workerRecord('a'),
      workerRecord('b'),
      workerRecord('c', { model_name: 'org/big' }),
      workerRecord('d', { model_name: 'gone', status: 'draining' }),
    ])
    await using face = await new HttpFace(fleet.router).listen()
    const get = async (path: string) => (await fetch(`http://127.0.0.1:${face.port}${path}`)).json()
    const model = (id: string) => ({ id, object: 'model', created: expect.any(Number), owned_by: 'infera' })
    expect(await get('/v1/models')).toEqual({ object: 'list', data: [model('tiny'), model('org/big')] })
    expect(await get('/v1/models/org%2Fbig')).toEqual(model('org/big'))
    expect(await get('/v1/models/org/big')).toEqual(model('org/big'))
  })
})

describe('a body beyond bodyBytesMax is a 413 that the client can read', () => {
  const limit = 1000
  const tooLarge = {
    message: `the request body is larger than ${limit} bytes; send less, or raise bodyBytesMax`,
    type: 'invalid_request_error',
    param: null,
    code: 'request_too_large',
  }

  test('as long as the limit it passes, a byte longer it does not', async () => {
    await using fleet = await startFleet({ bodyBytesMax: limit })
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => json({ ok: true }))
    const least = JSON.stringify(chatBody({ user: '' })).length
    const sized = (sizeBytes: number) => chatWith({ user: 'x'.repeat(sizeBytes - least) })
    for (const isChunked of [false, true]) {
      expect((await face.post(sized(limit), { isChunked })).status).toBe(200)
      const answer = await face.post(sized(limit + 1), { isChunked })
      expect(answer.status).toBe(413)
      expect(errorOf(answer)).toEqual(tooLarge)
      expect(answer.headers.connection).toBe('close')
    }
    expect(fleet.transport.calls).toHaveLength(2)
    expectIdle(fleet.router)
  })

  test('when content-length says so, before a byte of it has come', async () => {
    await using fleet = await startFleet({ bodyBytesMax: limit })
    await using face = await new HttpFace(fleet.router).listen()
    const socket = await face.socket()
    socket.write(rawPost('', ['content-length: 1000000000', 'x-request-id: mine-2']))
    const text = await new Promise<string>((resolve) => {
      let received = ''
      socket.on('data', (part) => {
        received += String(part)
        if (received.includes('request_too_large')) resolve(received)
      })
    })
    expect(text).toMatch(/^HTTP\/1\.1 413 /)
    expect(text.toLowerCase()).toContain('x-request-id: mine-2')
    socket.destroy()
    await Promise.all(face.handled)
    await face.connectionsGone()
    expect(fleet.transport.calls).toEqual([])
    expectIdle(fleet.router)
  })

  test('when it comes without a length, while the client still writes', async () => {
    await using fleet = await startFleet({ bodyBytesMax: limit })
    await using face = await new HttpFace(fleet.router).listen()
    const answer = await face.post('x'.repeat(4 * 1024 * 1024), { isChunked: true })
    expect(answer.status).toBe(413)
    expect(errorOf(answer)).toEqual(tooLarge)
    expect(fleet.transport.calls).toEqual([])
    expectIdle(fleet.router)
  })

  test('a client that promises 1 GB and leaves costs nothing', async () => {
    await using fleet = await startFleet({ bodyBytesMax: 2_000_000_000 })
    await using face = await new HttpFace(fleet.router).listen()
    const socket = await face.socket()
    socket.write(rawPost('{"model":"tiny"', ['content-length: 1000000000']))
    while (face.handled.length === 0) await new Promise((resolve) => setImmediate(resolve))
    socket.end()
    socket.destroy()
    await Promise.all(face.handled)
    await face.connectionsGone()
    expect(fleet.transport.calls).toEqual([])
    expectIdle(fleet.router)
  })
})

test('an id that could not be passed on is replaced', async () => {
  await using fleet = await startFleet()
  await using face = await new HttpFace(fleet.router).listen()
  fleet.transport.script('*', () => json({}))
  for (const id of ['a b', 'x'.repeat(129), 'ü'.normalize('NFC')]) {
    const { headers } = await face.post(chatBody(), { headers: { 'x-request-id': id } })
    expect(headers['x-request-id']).toMatch(/^[0-9a-f]{32}$/)
  }
  const { headers } = await face.post(chatBody(), {
    headers: { 'x-request-id': 'second', 'x-infera-request-id': 'first' },
  })
  expect([headers['x-request-id'], headers['x-infera-request-id']]).toEqual(['first', 'first'])
  expect(fleet.transport.calls.at(-1)?.request.headers).toMatchObject({
    'x-request-id': 'first',
    'x-infera-request-id': 'first',
  })
})
