import { once } from 'node:events'
import { createConnection } from 'node:net'
import { HttpTransport, parseWorkerRecord } from '@infera/fleet'
import { loadPromptModel } from '@infera/router/prompt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { SimEngine, SimHttpServer, SimListenError, simModelFolder, simWorkerRecord } from '../src/index.js'

let engine: SimEngine
let server: SimHttpServer
let url: string

beforeAll(async () => {
  const prompt = await loadPromptModel(simModelFolder)
  engine = new SimEngine({ prompt, timeScale: 0, bodyBytesMax: 20_000 })
  server = new SimHttpServer(engine)
  url = await server.start()
})

afterAll(async () => {
  await server.destroy()
  engine.destroy()
})

const messages = [{ role: 'user', content: 'Tell me about the river behind the old stone bridge.' }]
const post = (body: object, signal?: AbortSignal) =>
  fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  })

describe('an engine behind HTTP', () => {
  test('answers chats, streamed and not, with the same text', async () => {
    const unary = (await (await post({ messages })).json()) as { choices: { message: { content: string } }[] }
    const streamed = await post({ messages, stream: true })
    expect(streamed.headers.get('content-type')).toContain('text/event-stream')
    const events = (await streamed.text())
      .trimEnd()
      .split('\n\n')
      .map((event) => event.slice('data: '.length))
    expect(events.at(-1)).toBe('[DONE]')
    const text = events
      .slice(0, -1)
      .map((event) => JSON.parse(event).choices[0].delta.content ?? '')
      .join('')
    expect(text).toBe(unary.choices[0]?.message.content)
  })

  test('is served by the HTTP transport of the fleet under its own record', async () => {
    const record = parseWorkerRecord(simWorkerRecord(engine, { workerId: new URL(url).host, url }))
    expect(record.request_transport).toBe('http')
    const transport = new HttpTransport({})
    const body = new TextEncoder().encode(JSON.stringify({ model: 'infera-sim', messages, max_tokens: 4 }))
    const headers = { 'content-type': 'application/json' }
    const response = await transport.send(record, {
      method: 'POST',
      path: '/v1/chat/completions',
      headers,
      body,
    })
    let text = ''
    for await (const chunk of response.body) text += Buffer.from(chunk).toString()
    expect(JSON.parse(text).usage.completion_tokens).toBe(4)
    await transport.close()
  })

  test('refuses a body beyond the limit with 413, without reading it all', async () => {
    const response = await post({ messages: [{ role: 'user', content: 'x'.repeat(30_000) }] })
    expect(response.status).toBe(413)
    expect(((await response.json()) as { error: { code: number } }).error.code).toBe(413)
  })

  test('tells health, models and metrics', async () => {
    expect((await fetch(`${url}/health`)).status).toBe(200)
    expect(await (await fetch(`${url}/v1/models`)).json()).toMatchObject({ data: [{ id: 'infera-sim' }] })
    expect(await (await fetch(`${url}/metrics`)).text()).toContain('vllm:num_requests_running')
    expect((await fetch(`${url}/nothing`)).status).toBe(404)
    expect((await fetch(`${url}/health`, { method: 'DELETE' })).status).toBe(405)
  })

  test('stops generating when the client leaves in the middle of a stream', async () => {
    const abort = new AbortController()
    const response = await post(
      { messages, stream: true, ignore_eos: true, max_tokens: 100_000 },
      abort.signal,
    )
    const reader = response.body!.getReader()
    await reader.read()
    expect(engine.load().runningRequests).toBe(1)
    abort.abort()
    await expect.poll(() => engine.load().runningRequests).toBe(0)
    expect(engine.load().kvUsageRatio).toBe(0)
  })

  test('stops generating when the client leaves while it waits for a whole answer', async () => {
    const abort = new AbortController()
    const response = post({ messages, ignore_eos: true, max_tokens: 100_000 }, abort.signal)
    await expect.poll(() => engine.load().runningRequests).toBe(1)
    abort.abort()
    await expect(response).rejects.toThrow()
    await expect.poll(() => engine.load().runningRequests).toBe(0)
  })

  test('outlives a client that breaks off in the middle of its body', async () => {
    const socket = createConnection(Number(new URL(url).port), '127.0.0.1')
    await once(socket, 'connect')
    socket.write('POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{"prompt"')
    socket.destroy()
    await once(socket, 'close')
    expect((await fetch(`${url}/health`)).status).toBe(200)
  })
})

test('a port that is taken is an error with our code', async () => {
  const second = new SimHttpServer(engine, { port: Number(new URL(url).port) })
  await expect(second.start()).rejects.toBeInstanceOf(SimListenError)
  await second.close()
})

test('a server that closes lets a running stream end', async () => {
  const own = new SimHttpServer(engine)
  const ownUrl = await own.start()
  const response = await fetch(`${ownUrl}/v1/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({ messages, stream: true, ignore_eos: true, max_tokens: 300 }),
  })
  const closed = own.close()
  expect(await response.text()).toContain('data: [DONE]')
  await closed
  await expect(fetch(`${ownUrl}/health`)).rejects.toThrow()
})
