import type { IncomingMessage, ServerResponse } from 'node:http'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import type { Router } from '../src/index.js'
import { openAiFaceContract } from './contracts/openai-face.js'
import { chatBody, expectIdle, settled, startFleet } from './support/fleet.js'
import { HttpFace } from './support/http.js'
import { Feed, json, sse, sseOf } from './support/scripted-transport.js'

openAiFaceContract('handle', async (router) => {
  const face = await new HttpFace(router).listen()
  return {
    call: (path, init) => fetch(`http://127.0.0.1:${face.port}${path}`, init),
    [Symbol.asyncDispose]: () => face[Symbol.asyncDispose](),
  }
})

/** Hands requests over as Express does from `app.use(mount, ...)`: without the mount in `url`. */
const mounted = (router: Router, mount: string, keepsWhole = true) => ({
  handle(req: IncomingMessage & { originalUrl?: string }, res: ServerResponse) {
    const whole = req.url ?? '/'
    if (keepsWhole) req.originalUrl = whole
    if (whole.startsWith(mount)) req.url = whole.slice(mount.length) || '/'
    return router.handle(req, res)
  },
})

openAiFaceContract('handle in a mount', async (router) => {
  // What a mount cuts off depends on the request, so that other base paths go through it as well.
  const face = await new HttpFace(mounted(router, '/v1')).listen()
  return {
    call: (path, init) => fetch(`http://127.0.0.1:${face.port}${path}`, init),
    [Symbol.asyncDispose]: () => face[Symbol.asyncDispose](),
  }
})

test.each([
  ['at the base path', '/v1', '/v1', '/v1/models', true],
  ['above it', '/llm', '/v1', '/llm/v1/models', true],
  ['with the base path as clients see it', '/llm/v1', '/llm/v1', '/llm/v1/models', true],
  ['by something that hides the whole path', '/llm/v1', '', '/llm/v1/models', false],
])('handle works when it is mounted %s', async (_, mount, basePath, path, keepsWhole) => {
  await using fleet = await startFleet({ basePath })
  await using face = await new HttpFace(mounted(fleet.router, mount, keepsWhole)).listen()
  expect((await fetch(`http://127.0.0.1:${face.port}${path}?limit=1`)).status).toBe(200)
  const missing = await fetch(`http://127.0.0.1:${face.port}${mount}/nothing`)
  expect(missing.status).toBe(404)
  const { error } = (await missing.json()) as { error: { message: string } }
  expect(error.message).toContain(`there is no ${keepsWhole ? mount : ''}/nothing;`)
})

const requestOf = (path: string, init?: RequestInit) => new Request(`http://router.test${path}`, init)

openAiFaceContract('fetch', async (router) => ({
  call: (path, init) => router.fetch(requestOf(path, init)),
  [Symbol.asyncDispose]: async () => {},
}))

const chatRequest = (init: RequestInit = {}) =>
  requestOf('/v1/chat/completions', {
    method: 'POST',
    body: JSON.stringify(chatBody({ stream: true })),
    ...init,
  })

test('fetch is a value: it works without its router, and whatever a framework passes beside the request', async () => {
  await using fleet = await startFleet()
  fleet.transport.script('*', () => json({ ok: true }))
  const { fetch: POST } = fleet.router as { fetch: (request: Request, context: unknown) => Promise<Response> }
  const response = await POST(chatRequest(), { params: Promise.resolve({}) })
  expect(await response.json()).toEqual({ ok: true })
})

test('fetch asks the worker for a chunk when its reader does, but for the first', async () => {
  await using fleet = await startFleet()
  fleet.transport.script('*', () => sse('1', '2', '3'))
  const { body } = await fleet.router.fetch(chatRequest())
  const reader = (body as ReadableStream<Uint8Array>).getReader()
  const [call] = fleet.transport.calls
  const pulls: (number | undefined)[] = []
  for (let index = 0; index < 3; index++) {
    await settled()
    pulls.push(call?.pullCount)
    await reader.read()
  }
  expect(pulls).toEqual([1, 1, 2])
  await reader.cancel()
  expectIdle(fleet.router)
})

test('a signal that has aborted already stops fetch before it reads or sends anything', async () => {
  await using fleet = await startFleet()
  const reason = new Error('never mind')
  await expect(fleet.router.fetch(chatRequest({ signal: AbortSignal.abort(reason) }))).rejects.toBe(reason)
  expect(fleet.transport.calls).toEqual([])
})

test('fetch waits no longer for a request body than its signal does, and lets go of the body', async () => {
  await using fleet = await startFleet()
  const leaving = new AbortController()
  const reason = new Error('too slow')
  let cancelled: unknown
  let isAsked: () => void = () => {}
  const asked = new Promise<void>((resolve) => {
    isAsked = resolve
  })
  const body = new ReadableStream<Uint8Array>({
    pull: () => {
      isAsked()
      return new Promise(() => {})
    },
    cancel: (why) => {
      cancelled = why
    },
  })
  const response = fleet.router.fetch(chatRequest({ body, duplex: 'half', signal: leaving.signal }))
  await asked
  leaving.abort(reason)
  await expect(response).rejects.toBe(reason)
  expect(cancelled).toBe(reason)
  expectIdle(fleet.router)
})

test('a request body that breaks rejects fetch with what it threw, and no worker is troubled', async () => {
  await using fleet = await startFleet()
  const broken = new Error('the upload broke')
  const body = new ReadableStream({ pull: () => Promise.reject(broken) })
  await expect(fleet.router.fetch(chatRequest({ body, duplex: 'half' }))).rejects.toBe(broken)
  expect(fleet.transport.calls).toEqual([])
})

test('fetch reads no more of a body than shows that it is too long', async () => {
  await using fleet = await startFleet({ bodyBytesMax: 1000 })
  let sentCount = 0
  const endless = {
    pull(controller: ReadableStreamDefaultController<Uint8Array>) {
      sentCount += 1
      controller.enqueue(new Uint8Array(400))
    },
  }
  const body = new ReadableStream<Uint8Array>(endless, { highWaterMark: 0 })
  expect((await fleet.router.fetch(chatRequest({ body, duplex: 'half' }))).status).toBe(413)
  expect(sentCount).toBe(3)
})

/** A fleet's logger that keeps the errors. */
function errorLog() {
  const lines: string[] = []
  const quiet = () => {}
  const error = (fields: object) => lines.push(JSON.stringify(fields))
  return { lines, logger: { debug: quiet, info: quiet, warn: quiet, error } }
}

test('handle cuts off an answer that something else began, says so in the log, and leaves nothing running', async () => {
  const { lines, logger } = errorLog()
  await using fleet = await startFleet({ logger })
  fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n')))
  await using face = await new HttpFace({
    handle: async (req, res) => {
      res.flushHeaders()
      await fleet.router.handle(req, res)
    },
  }).listen()
  expect((await face.post()).isCut).toBe(true)
  expect(await (await fleet.transport.call(0)).ended).toBe('cancelled')
  expect(lines).toEqual([expect.stringContaining('Cannot set headers after they are sent')])
  expectIdle(fleet.router)
})

test('a body that something read before is a 500 whose log line says what to change', async () => {
  const { lines, logger } = errorLog()
  await using fleet = await startFleet({ logger })
  const request = chatRequest()
  await request.text()
  expect((await fleet.router.fetch(request)).status).toBe(500)
  await using face = await new HttpFace({
    handle: async (req, res) => {
      for await (const _ of req);
      await fleet.router.handle(req, res)
    },
  }).listen()
  expect((await face.post()).status).toBe(500)
  expect(lines).toHaveLength(2)
  for (const line of lines) expect(line).toContain('hand requests over before their bodies are parsed')
})

test('the signal reaches the worker even when nobody holds request and response any more', async () => {
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc') as () => void
  await using fleet = await startFleet()
  fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n')))
  const leaving = new AbortController()
  await (async () => {
    await fleet.router.fetch(chatRequest({ signal: leaving.signal }))
  })()
  const call = await fleet.transport.call(0)
  for (let turn = 0; turn < 3; turn++) {
    await settled()
    collectGarbage()
  }
  leaving.abort()
  expect(await call.ended).toBe('cancelled')
  expectIdle(fleet.router)
})
