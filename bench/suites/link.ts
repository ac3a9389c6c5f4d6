// What the link costs, and what a crowd of slow readers does to others, beside plain HTTP. The server and its readers run in this
// process, the worker in another; both transports reach the same worker.
import { setMaxListeners } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import {
  EmbeddedDiscovery,
  HttpTransport,
  LinkServer,
  type RequestTransport,
  type WorkerRecord,
} from '@infera/fleet'
import { threadTimeUs } from '../lib/cpu-time.js'
import { FlowWorkerProcess, flowRecord } from '../lib/flow-worker-process.js'
import { type Case, runSuite } from '../lib/suite.js'

const isQuick = process.argv.includes('--quick')
const streams = 32
const chunksPerStream = isQuick ? 200 : 1_000
const pacedChunks = isQuick ? 150 : 500
const crowdSize = 200
const slowBytesPerMs = 32
const MB = 1_000_000

const discovery = new EmbeddedDiscovery()
const linkServer = new LinkServer({
  discovery,
  serverRecord: { server_id: 'bench', url: 'http://127.0.0.1:1', version: '0', settings: {} },
})
const listener = createServer()
linkServer.attach(listener)
await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
const worker = await FlowWorkerProcess.start(`ws://127.0.0.1:${(listener.address() as AddressInfo).port}`)
const http = new HttpTransport()

interface Route {
  readonly name: string
  readonly transport: RequestTransport
  readonly record: WorkerRecord
}
const overHttp: Route = { name: 'http', transport: http, record: flowRecord('http', worker.url) }
const overLink: Route = {
  name: 'link',
  transport: linkServer.requests,
  record: flowRecord('link', 'link://flow:1'),
}

async function open({ transport, record }: Route, path: string, signal?: AbortSignal) {
  const request = { method: 'GET', path, headers: {}, body: new Uint8Array() } as const
  const { body } = await transport.send(record, request, signal ? { signal } : {})
  return body[Symbol.asyncIterator]()
}

async function readAll(route: Route): Promise<void> {
  const reader = await open(route, `/burst/${chunksPerStream}`)
  while (!(await reader.next()).done);
}

const burst = (route: Route) => Promise.all(Array.from({ length: streams }, () => readAll(route)))

async function serverCpuPerChunk(route: Route): Promise<number> {
  const startedUs = threadTimeUs()
  await burst(route)
  return (threadTimeUs() - startedUs) / (streams * chunksPerStream)
}

async function workerCpuPerChunk(route: Route): Promise<number> {
  const before = await worker.usage('cpu')
  await burst(route)
  return ((await worker.usage('cpu')).cpuUs - before.cpuUs) / (streams * chunksPerStream)
}

interface Measured {
  readonly p50Ms: number
  readonly p99Ms: number
  readonly serverHeldMB: number
  readonly workerHeldMB: number
}

/** The least that was held without a crowd. */
const idle = { server: Number.POSITIVE_INFINITY, worker: Number.POSITIVE_INFINITY }

/** Latencies of one stream that is read as it comes, from the making of a chunk to its reading; and what a crowd holds meanwhile. */
async function measure(route: Route, readers: number): Promise<Measured> {
  const stop = new AbortController()
  setMaxListeners(0, stop.signal)
  // What a crowd before this one held is given back when its sockets are closed.
  await pause(500)
  idle.server = Math.min(idle.server, heldBytes())
  idle.worker = Math.min(idle.worker, (await worker.usage('held')).heldBytes)
  const crowd = await Promise.all(Array.from({ length: readers }, () => open(route, '/flood', stop.signal)))
  const reading = crowd.map(async (reader) => {
    while (!stop.signal.aborted) {
      const { value } = await reader.next()
      // HTTP joins chunks: what counts is bytes.
      await pause((value?.byteLength ?? 0) / slowBytesPerMs, undefined, { signal: stop.signal })
    }
  })
  const settled = Promise.allSettled(reading)
  if (readers > 0) await filled()
  const latenciesMs: number[] = []
  const reader = await open(route, `/paced/${pacedChunks}`)
  for (;;) {
    const step = await reader.next()
    if (step.done) break
    const chunk = Buffer.from(step.value)
    // Chunks that came together tell of the first.
    const madeNs = chunk.readBigUInt64LE()
    latenciesMs.push(Number(process.hrtime.bigint() - madeNs) / 1e6)
  }
  const after = { server: heldBytes(), worker: (await worker.usage('held')).heldBytes }
  stop.abort()
  await settled
  latenciesMs.sort((a, b) => a - b)
  const at = (ratio: number) => latenciesMs[Math.floor(latenciesMs.length * ratio)] as number
  return {
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    serverHeldMB: (after.server - idle.server) / MB,
    workerHeldMB: (after.worker - idle.worker) / MB,
  }
}

/** Waits until the worker rests, because everything between it and the slow readers is full; at most 10 s. */
async function filled(): Promise<void> {
  const stepMs = 250
  for (let count = 0; count < 40; count++) {
    const before = await worker.usage('cpu')
    await pause(stepMs)
    if ((await worker.usage('cpu')).cpuUs - before.cpuUs < 0.3 * stepMs * 1_000) return
  }
}

function heldBytes(): number {
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

/** Cases that come from one measurement: the first of a round measures for all. */
function crowdCases(): Case[] {
  const newest = new Map<string, Measured>()
  const cases: Case[] = []
  for (const [label, readers] of [
    ['alone', 0],
    [`crowd${crowdSize}`, crowdSize],
  ] as const) {
    for (const route of [overHttp, overLink]) {
      const key = `${label}/${route.name}`
      const run = async (field: keyof Measured, isFirst: boolean) => {
        if (isFirst) newest.set(key, await measure(route, readers))
        return newest.get(key)?.[field] as number
      }
      const add = (what: string, metric: string, unit: string, field: keyof Measured, isFirst = false) =>
        cases.push({
          name: `${what}/${key}`,
          metric,
          unit,
          run: () => run(field, isFirst),
          ...(route === overHttp ? {} : { baseline: `${what}/${label}/http` }),
        })
      add('latency-p50', 'chunk p50', 'ms', 'p50Ms', true)
      add('latency-p99', 'chunk p99', 'ms', 'p99Ms')
      if (readers === 0) continue
      add('held-server', 'heap and buffers over idle', 'MB', 'serverHeldMB')
      add('held-worker', 'heap and buffers over idle', 'MB', 'workerHeldMB')
    }
  }
  return cases
}

const chunkCase = (what: string, route: Route, run: (route: Route) => Promise<number>): Case => ({
  name: `${what}/${route.name}`,
  metric: 'CPU per chunk',
  unit: 'us',
  run: () => run(route),
  ...(route === overHttp ? {} : { baseline: `${what}/http` }),
})

await runSuite('link', [
  chunkCase('chunk-server', overHttp, serverCpuPerChunk),
  chunkCase('chunk-server', overLink, serverCpuPerChunk),
  chunkCase('chunk-worker', overHttp, workerCpuPerChunk),
  chunkCase('chunk-worker', overLink, workerCpuPerChunk),
  ...crowdCases(),
])
if (!process.argv.includes('--json')) {
  const { rssBytes } = await worker.usage('held')
  console.log(
    `resident after all: server ${Math.round(process.memoryUsage().rss / MB)} MB, worker ${Math.round(rssBytes / MB)} MB`,
  )
}

await worker.close()
linkServer.destroy()
await http.close()
await discovery.close()
listener.close()
