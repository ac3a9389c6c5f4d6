import { EmbeddedDiscovery, parseWorkerRecord, type WorkerRequestHandler } from '@infera/fleet'
import { NatsTransport } from '@infera/fleet/nats'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { NatsServer, natsMissing } from '../../fleet/test/support/nats-server.js'
import { deferred, until } from '../../fleet/test/support/wait.js'
import { EngineWorker } from '../src/index.js'
import { natsRequestPlane } from '../src/nats/index.js'

const bytes = (text: string) => new TextEncoder().encode(text)
const record = parseWorkerRecord({
  worker_id: 'h:1',
  url: 'http://h:1',
  model_name: 'm',
  engine: 'vllm',
})

describe.skipIf(natsMissing)('a worker on NATS that is found through a registry', () => {
  let server: NatsServer
  let discovery: EmbeddedDiscovery
  let transport: NatsTransport
  let worker: EngineWorker
  let events: string[]
  let rest = deferred()
  let following: Promise<void>

  const handler: WorkerRequestHandler = async (_request, { signal }) => ({
    status: 200,
    headers: {},
    body: (async function* () {
      yield bytes('one ')
      const aborted = new Promise<never>((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason), { once: true })
      })
      await Promise.race([rest.promise, aborted])
      yield bytes('two')
      events.push('answer ended')
    })(),
  })

  beforeAll(async () => {
    server = await NatsServer.start()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  beforeEach(async () => {
    events = []
    rest = deferred()
    discovery = new EmbeddedDiscovery()
    transport = new NatsTransport({ url: server.url, probeIntervalMs: 100 })
    const planes = [natsRequestPlane({ url: server.url, workerId: record.worker_id, handler })]
    // Longer than any test: whoever waits for it fails.
    worker = new EngineWorker({ record, discovery, planes, drainTimeoutMs: 2_000_000_000 })
    following = follow()
    await worker.start()
    expect(worker.record).toMatchObject({ request_transport: 'nats', ext: { nats: 'core' } })
    await until(() => events.includes('active'))
  })
  afterEach(async () => {
    rest.resolve()
    await worker.destroy()
    await transport.close()
    await discovery.close()
    await following
  })

  /** What a server sees of the worker. */
  async function follow(): Promise<void> {
    for await (const change of discovery.watch()) {
      if (change.type === 'entryPut' && change.entry.kind === 'worker')
        events.push(change.entry.record.status)
      if (change.type === 'entryRemoved') events.push(change.reason)
    }
  }

  /** A stream that has begun, and what becomes of it. */
  async function stream(): Promise<{ ended: Promise<string> }> {
    const request = { method: 'POST' as const, path: '/v1/x', headers: {}, body: bytes('{"stream":true}') }
    const response = await transport.send(worker.record, request)
    const chunks = response.body[Symbol.asyncIterator]()
    let text = new TextDecoder().decode((await chunks.next()).value)
    const read = async () => {
      for (let next = await chunks.next(); !next.done; next = await chunks.next()) {
        text += new TextDecoder().decode(next.value)
      }
      return text
    }
    return { ended: read() }
  }

  test('out of rotation first, then what runs ends whole, then it leaves', async () => {
    const { ended } = await stream()
    const closing = worker.close()
    await until(() => events.includes('draining'))
    rest.resolve()
    expect(await ended).toBe('one two')
    await closing
    await until(() => events.includes('deregistered'))
    expect(events).toEqual(['active', 'draining', 'answer ended', 'deregistered'])
  })

  test('destroyed during its drain, it breaks what runs and leaves', async () => {
    const { ended } = await stream()
    const broken = ended.then(
      () => 'whole',
      () => 'broken',
    )
    const closing = worker.close()
    await until(() => events.includes('draining'))
    await worker.destroy()
    await closing
    await until(() => events.includes('deregistered'))
    expect(await broken).toBe('broken')
  })
})
