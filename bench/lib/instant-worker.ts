import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { TransportResponse, WorkerRecord } from '@infera/fleet'

/** Chunks of a streamed answer. */
export const chunksPerStream = 64

const encoder = new TextEncoder()
const chunk = encoder.encode(`data: {"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n`)
const done = encoder.encode('data: [DONE]\n\n')
const whole = encoder.encode(
  '{"object":"chat.completion","choices":[{"index":0,"message":{"content":"word"}}]}',
)

async function* stream(): AsyncGenerator<Uint8Array> {
  for (let index = 0; index < chunksPerStream; index++) {
    yield chunk
    await nextTurn() // each chunk is a write of its own, as an engine's steps are
  }
  yield done
}

async function* unary(): AsyncGenerator<Uint8Array> {
  yield whole
}

/** An engine that needs no time at all. */
export function instantAnswer(body: Uint8Array): TransportResponse {
  const isStream = Buffer.from(body).includes('"stream":true')
  return {
    status: 200,
    headers: { 'content-type': isStream ? 'text/event-stream' : 'application/json' },
    body: isStream ? stream() : unary(),
  }
}

/** The record of such an engine behind link. */
export function instantRecord(model: string): WorkerRecord {
  return {
    worker_id: 'instant:1',
    url: 'link://instant:1',
    model_name: model,
    engine: 'vllm',
    status: 'active',
    disagg_mode: 'mixed',
    disagg_meta: {},
    kv_events_endpoint: null,
    kv_block_size: 16,
    dp_rank: null,
    dp_size: null,
    request_transport: 'link',
  }
}

/** The same engine behind HTTP. */
export class InstantWorker {
  readonly url: string
  readonly #server: Server

  private constructor(server: Server) {
    this.#server = server
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }

  static async start(): Promise<InstantWorker> {
    const server = createServer((req, res) => {
      if (req.method === 'GET') {
        res.end()
        return
      }
      const parts: Buffer[] = []
      req.on('data', (part: Buffer) => parts.push(part))
      req.on('end', async () => {
        const { status, headers, body } = instantAnswer(Buffer.concat(parts))
        res.writeHead(status, headers)
        for await (const bytes of body) res.write(bytes)
        res.end()
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return new InstantWorker(server)
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
