import { describe, expect, test } from 'vitest'
import type { Router } from '../src/index.js'
import { chatBody, expectIdle, startFleet } from './support/fleet.js'
import { Feed, json, silence, sseOf, utf8 } from './support/scripted-transport.js'

// `router.fetch` called as runtimes and frameworks call their handlers. They differ in `this`, in what comes beside the request
// and in the address; the Request and Response are the same everywhere.

interface Shape {
  readonly name: string
  readonly basePath: string
  /** Where the runtime says that the request went. */
  readonly baseUrl: string
  readonly call: (router: Router, request: Request) => Response | Promise<Response>
}

const shapes: readonly Shape[] = [
  {
    // app/api/v1/[...path]/route.ts: `export const { POST, GET } = { POST: router.fetch, GET: router.fetch }`
    name: 'a Next route handler',
    basePath: '/api/v1',
    baseUrl: 'https://app.example:3000/api/v1',
    call: (router, request) => {
      const route = { POST: router.fetch, GET: router.fetch } as Record<
        string,
        (request: Request, context: unknown) => Promise<Response>
      >
      const handler = route[request.method]
      if (!handler) throw new Error(`the route exports no ${request.method}`)
      return handler(request, { params: Promise.resolve({ path: ['chat', 'completions'] }) })
    },
  },
  {
    name: 'Bun.serve',
    basePath: '/v1',
    baseUrl: 'http://0.0.0.0:3000/v1',
    call: (router, request) => {
      const options: { fetch: (this: unknown, request: Request, server: unknown) => Promise<Response> } = {
        fetch: router.fetch,
      }
      const server = { port: 3000, upgrade: () => false }
      return options.fetch.call(server, request, server)
    },
  },
  {
    name: 'Deno.serve',
    basePath: '/v1',
    baseUrl: 'http://localhost:8000/v1',
    call: (router, request) => {
      const handler: (request: Request, info: unknown) => Promise<Response> = router.fetch
      return handler(request, { remoteAddr: { transport: 'tcp', hostname: '::1', port: 40_000 } })
    },
  },
  {
    name: 'a worker module',
    basePath: '/edge/llm',
    baseUrl: 'https://edge.example/edge/llm',
    call: (router, request) => {
      const module: { fetch: (request: Request, env: unknown, context: unknown) => Promise<Response> } = {
        fetch: router.fetch,
      }
      return module.fetch(request, {}, { waitUntil: () => {} })
    },
  },
]

/** A request whose body comes in pieces, as a runtime hands over what comes from a socket. */
function streaming(url: string, body: unknown, signal?: AbortSignal): Request {
  const bytes = utf8(JSON.stringify(body))
  let at = 0
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (at >= bytes.length) controller.close()
      else controller.enqueue(bytes.slice(at, at + 10))
      at += 10
    },
  })
  const headers = { 'content-type': 'application/json' }
  return new Request(url, {
    method: 'POST',
    headers,
    body: stream,
    duplex: 'half',
    ...(signal ? { signal } : {}),
  })
}

describe.each(shapes)('router.fetch as $name calls it', ({ basePath, baseUrl, call }) => {
  test('answers a body that comes in pieces, and lists models', async () => {
    await using fleet = await startFleet({ basePath })
    fleet.transport.script('*', () => json({ ok: true }))
    const response = await call(fleet.router, streaming(`${baseUrl}/chat/completions?beta=1`, chatBody()))
    expect(await response.json()).toEqual({ ok: true })
    expect(JSON.parse(fleet.transport.calls[0]?.text ?? '')).toEqual(chatBody())
    const models = await call(fleet.router, new Request(`${baseUrl}/models`))
    expect(await models.json()).toMatchObject({ object: 'list' })
    const elsewhere = await call(fleet.router, new Request(new URL('/elsewhere', baseUrl)))
    expect(elsewhere.status).toBe(404)
    expectIdle(fleet.router)
  })

  test('streams, and cancels at the worker when the client leaves in the middle', async () => {
    await using fleet = await startFleet({ basePath })
    fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n')))
    const leaving = new AbortController()
    const request = streaming(`${baseUrl}/chat/completions`, chatBody({ stream: true }), leaving.signal)
    const response = await call(fleet.router, request)
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    expect(Buffer.from((await reader.read()).value as Uint8Array).toString()).toBe('data: 1\n\n')
    const next = reader.read()
    leaving.abort(new Error('gone'))
    await expect(next).rejects.toThrow('gone')
    expect(await (await fleet.transport.call(0)).ended).toBe('cancelled')
    expectIdle(fleet.router)
  })

  test('cancels at the worker when the client leaves before the answer', async () => {
    await using fleet = await startFleet({ basePath })
    fleet.transport.script('*', silence)
    const leaving = new AbortController()
    const request = streaming(`${baseUrl}/chat/completions`, chatBody(), leaving.signal)
    const response = Promise.resolve(call(fleet.router, request))
    const sent = await fleet.transport.call(0)
    leaving.abort(new Error('gone'))
    await expect(response).rejects.toThrow('gone')
    expect(await sent.ended).toBe('cancelled')
    expectIdle(fleet.router)
  })
})
