import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  EmbeddedDiscovery,
  LinkRefusedError,
  LinkServer,
  type LinkServerOptions,
  type WorkerRecord,
} from '@infera/fleet'
import { chainBlockHashes, loadPromptModel, type PromptModel } from '@infera/router/prompt'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type SimWorker, type SimWorkerOptions, simModelFolder, startSimWorker } from '../src/index.js'
import { CacheMirror } from '../src/testing/cache-mirror.js'

let prompt: PromptModel
const cleanups: (() => unknown)[] = []

beforeAll(async () => {
  prompt = await loadPromptModel(simModelFolder)
})

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function startServer(options: Partial<LinkServerOptions> = {}) {
  const http: Server = createServer()
  const link = new LinkServer({
    discovery: new EmbeddedDiscovery(),
    serverRecord: { server_id: 's', url: 'http://127.0.0.1', version: '0', settings: {} },
    ...options,
  })
  link.attach(http)
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  cleanups.push(async () => {
    await link.destroy()
    http.closeAllConnections()
    await new Promise((resolve) => http.close(resolve))
  })
  return { link, url: `ws://127.0.0.1:${(http.address() as AddressInfo).port}` }
}

async function startWorker(join: string, options: Partial<SimWorkerOptions> = {}): Promise<SimWorker> {
  const worker = await startSimWorker({ join, prompt, engine: { timeScale: 0 }, ...options })
  cleanups.push(() => worker.destroy())
  return worker
}

const messages = [
  { role: 'user', content: 'Tell me about the river behind the old stone bridge. '.repeat(4) },
]

async function chat(link: LinkServer, record: WorkerRecord, body: object, signal?: AbortSignal) {
  const bytes = new TextEncoder().encode(JSON.stringify({ model: 'infera-sim', messages, ...body }))
  const request = { method: 'POST', path: '/v1/chat/completions', headers: {}, body: bytes } as const
  return link.requests.send(record, request, signal ? { signal } : {})
}

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = []
  for await (const chunk of body) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

describe('a simulated worker behind link', () => {
  test('joins with a record that the fleet takes, and answers through the server', async () => {
    const { link, url } = await startServer()
    const worker = await startWorker(url)
    await worker.joined
    expect(worker.record).toMatchObject({
      engine: 'vllm',
      model_name: 'infera-sim',
      kv_block_size: 16,
      request_transport: 'link',
      kv: { tokenizer_digest: prompt.tokenizerDigest, tokenizer_canary: prompt.tokenizerCanary },
      ext: { engine: 'sim', instance_id: worker.engine.instanceId },
    })
    const first = await chat(link, worker.record, { max_tokens: 4 })
    expect(first.status).toBe(200)
    const again = await chat(link, worker.record, {
      max_tokens: 4,
      stream: true,
      stream_options: { include_usage: true },
    })
    const answer = JSON.parse(await textOf(first.body))
    const streamed = await textOf(again.body)
    expect(streamed.endsWith('data: [DONE]\n\n')).toBe(true)
    expect(answer.choices[0].message.content.length).toBeGreaterThan(0)
    expect(Number(/"cached_tokens":(\d+)/.exec(streamed)?.[1])).toBeGreaterThan(0)
  })

  test('brings its KV events: a snapshot, then a batch for each change, that hash to the chain of the prompt', async () => {
    const { link, url } = await startServer()
    const worker = await startWorker(url)
    await worker.joined
    await textOf((await chat(link, worker.record, { max_tokens: 1 })).body)
    const mirror = new CacheMirror()
    const types: string[] = []
    const other = [
      { role: 'user', content: 'Something else, and long enough for several blocks of tokens here.' },
    ]
    for await (const message of link.kvEvents.subscribe(worker.record)) {
      types.push(message.type)
      if (message.type === 'snapshot') {
        for (const payload of message.payloads) mirror.apply(payload)
        await textOf((await chat(link, worker.record, { messages: other, max_tokens: 1 })).body)
      } else if (message.type === 'batch') {
        mirror.apply(message.payload)
        break
      }
    }
    expect(types).toEqual(['snapshot', 'batch'])
    const fromEvents = [...mirror.blocks.keys()].map((hash) =>
      chainBlockHashes(Uint32Array.from(mirror.tokensUpTo(hash)), 16).at(-1),
    )
    const fromPrompts = [messages, other].flatMap((of) => [
      ...chainBlockHashes(prompt.tokenize('/v1/chat/completions', { messages: of }), 16),
    ])
    expect(new Set(fromEvents)).toEqual(new Set(fromPrompts))
    expect(fromPrompts.length).toBeGreaterThan(4)
  })

  test('cancels in the engine what is cancelled at the server', async () => {
    const { link, url } = await startServer()
    const worker = await startWorker(url)
    await worker.joined
    const abort = new AbortController()
    const body = { stream: true, ignore_eos: true, max_tokens: 100_000 }
    const response = await chat(link, worker.record, body, abort.signal)
    for await (const _ of response.body) break
    await expect.poll(() => worker.engine.load().runningRequests).toBe(0)
    expect(worker.engine.load().kvUsageRatio).toBe(0)
  })

  test('drains: what runs is finished, and then it leaves', async () => {
    const { link, url } = await startServer()
    const worker = await startWorker(url)
    await worker.joined
    const response = await chat(link, worker.record, { stream: true, ignore_eos: true, max_tokens: 500 })
    const closed = worker.close()
    expect((await textOf(response.body)).endsWith('data: [DONE]\n\n')).toBe(true)
    await closed
    expect(worker.engine.state).toBe('closed')
    await expect(chat(link, worker.record, {})).rejects.toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
  })

  test('a destroyed worker breaks what runs', async () => {
    const { link, url } = await startServer()
    const worker = await startWorker(url)
    await worker.joined
    const response = await chat(link, worker.record, { stream: true, ignore_eos: true, max_tokens: 100_000 })
    worker.destroy()
    await expect(textOf(response.body)).rejects.toMatchObject({ retryable: true })
  })

  test('is refused by a server with another tokenizer, and says both digests', async () => {
    const { url } = await startServer({ settingsFor: () => ({ tokenizer_digest: 'ffffffffffffffff' }) })
    const worker = await startWorker(url)
    const refusal = await worker.joined.then(
      () => undefined,
      (error: unknown) => error,
    )
    expect(refusal).toBeInstanceOf(LinkRefusedError)
    expect((refusal as LinkRefusedError).setting).toEqual({
      name: 'tokenizer_digest',
      server: 'ffffffffffffffff',
      worker: prompt.tokenizerDigest,
    })
  })

  test('reports its load to the server', async () => {
    const { link, url } = await startServer()
    const worker = await startWorker(url, { workerId: 'loaded:1' })
    await worker.joined
    await expect
      .poll(() => link.load('loaded:1'))
      .toMatchObject({ runningRequests: 0, waitingRequests: 0, kvUsageRatio: 0 })
  })

  test('names the option that is wrong', async () => {
    await expect(startSimWorker({ join: [] })).rejects.toThrow("option 'join'")
    await expect(startSimWorker({ join: 'ws://127.0.0.1:1', engine: { blocks: 0 } })).rejects.toThrow(
      "option 'blocks'",
    )
  })
})
