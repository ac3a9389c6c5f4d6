// A worker in a process of its own, forked by the suite `link`: the same streams over HTTP and over link.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'
import { LinkWorker } from '@infera/fleet'
import type { FlowWorkerMessage, FlowWorkerUsage } from './flow-worker-process.js'
import { flowRecord } from './flow-worker-process.js'

const token = Buffer.from(`data: {"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n`)
const floodBytes = 16 * 1024

/** `/burst/<chunks>`: as fast as an engine's steps. `/flood`: without end. `/paced/<chunks>`: one every 2 ms, with the time of its making. */
async function* stream(path: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const [, kind, count] = path.split('/')
  if (kind === 'flood') {
    while (!signal.aborted) {
      yield new Uint8Array(floodBytes)
      await nextTurn()
    }
    return
  }
  for (let index = 0; index < Number(count) && !signal.aborted; index++) {
    if (kind === 'burst') {
      yield token
      await nextTurn()
    } else {
      await pause(2)
      const stamped = Buffer.alloc(64)
      // Monotonic, and the same for all processes of a machine.
      stamped.writeBigUInt64LE(process.hrtime.bigint())
      yield stamped
    }
  }
}

const server = createServer(async (request, response) => {
  request.resume()
  const gone = new AbortController()
  let wake = () => {}
  response.on('drain', () => wake())
  response.on('close', () => {
    gone.abort()
    wake()
  })
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for await (const chunk of stream(request.url ?? '', gone.signal)) {
    if (response.write(chunk) || gone.signal.aborted) continue
    await new Promise<void>((resolve) => {
      wake = resolve
    })
  }
  response.end()
})
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))

const link = new LinkWorker({
  join: process.argv[2] as string,
  record: flowRecord('link', 'link://flow:1'),
  handler: async ({ path }, { signal }) => ({ status: 200, headers: {}, body: stream(path, signal) }),
})
link.start()
await link.joined

const send = (message: FlowWorkerMessage) => process.send?.(message)
process.on('message', (what) => {
  // A collection is not free, so it is only made for whom it matters.
  if (what === 'held') globalThis.gc?.()
  const { heapUsed, external, rss } = process.memoryUsage()
  const { user, system } = process.cpuUsage()
  const usage: FlowWorkerUsage = { heldBytes: heapUsed + external, rssBytes: rss, cpuUs: user + system }
  send({ type: 'usage', usage })
})
process.on('disconnect', () => process.exit())
send({ type: 'ready', url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
