// Appendix B of the routing specification, 1: our router in front of workers of Infera 0.1. The second time that a prompt comes, all
// its blocks are known to be there, whichever engine tells of them, and by whichever transport.
import { EmbeddedDiscovery, HttpTransport, type KvEventTransport, parseWorkerRecord } from '@infera/fleet'
import { NatsKvEvents, natsToken } from '@infera/fleet/nats'
import { ZmqKvEvents } from '@infera/fleet/zmq'
import { Kvm } from '@nats-io/kv'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { NatsServer, natsMissing } from '../../fleet/test/support/nats-server.js'
import { freePorts, RawEngine, sequenceFrame } from '../../fleet/test/support/zmq-peers.js'
import { Router } from '../src/index.js'

const simModel = new URL('../../sim/model', import.meta.url).pathname
const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'))
/** Tokens 1 to 8 in blocks of 4, as routing.md 3.3 has them on the wire. */
const arrayBatch = bytes(
  '93cb3ff80000000000009197ab426c6f636b53746f726564926fccdec098010203040506070804c0c0c0',
)
const mapBatch = bytes(
  '93cb3ff80000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573926fccdeb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0c0',
)
/** SGLang under EAGLE: tokens in pairs, signed hashes, after a parent that nobody knows; then all is cleared. */
const clearing = bytes(
  '93cb3ff80000000000009397ab426c6f636b53746f72656492fbcf8000000000000001f99492010292020392030492040504c0a347505593ac426c6f636b52656d6f766564916faa4350555f50494e4e454491b0416c6c426c6f636b73436c656172656401',
)

interface Engine {
  readonly engine: 'sglang' | 'vllm' | 'atom'
  readonly batch: Uint8Array
}
const engines: readonly Engine[] = [
  { engine: 'sglang', batch: arrayBatch },
  { engine: 'vllm', batch: mapBatch },
  { engine: 'vllm', batch: arrayBatch },
  { engine: 'atom', batch: mapBatch },
]

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function routerFor(
  kvEvents: KvEventTransport,
  engine: Engine['engine'],
  more: Record<string, unknown>,
) {
  const discovery = new EmbeddedDiscovery()
  const record = parseWorkerRecord({
    ...{ worker_id: '10.0.0.1:8080', url: 'http://10.0.0.1:8080', model_name: 'm', engine },
    ...{ kv_block_size: 4, request_transport: 'http', ...more },
  })
  await discovery.register({ kind: 'worker', record })
  const http = new HttpTransport()
  const router = new Router({
    discovery,
    transports: [http],
    kvEvents: [kvEvents],
    models: [{ name: 'm', folder: simModel }],
  })
  cleanups.push(
    () => http.close(),
    () => discovery.close(),
    () => router.destroy(),
  )
  await router.start()
  const route = () =>
    router.route({ path: '/v1/completions', body: { model: 'm', prompt: [1, 2, 3, 4, 5, 6, 7, 8, 9] } })
  return { router, route }
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setImmediate(resolve))
}

describe('over ZMQ', () => {
  test.each(engines)('$engine', async ({ engine, batch }) => {
    const port = await freePorts(1)
    const raw = await RawEngine.start({ port })
    cleanups.push(() => raw.close())
    const events = new ZmqKvEvents()
    cleanups.push(() => events.close())
    const endpoint = { kv_events_endpoint: `tcp://127.0.0.1:${port}` }
    const { route } = await routerFor(events, engine, endpoint)
    expect(await route()).toMatchObject({ overlapBlocks: 0, requestBlocks: 2 })
    await raw.subscribed()
    const send = (sequence: number, payload: Uint8Array) =>
      raw.send(engine === 'atom' ? ['kv-events', payload] : ['kv-events', sequenceFrame(sequence), payload])
    send(0, batch)
    await until(async () => (await route()).overlapBlocks === 2)
    expect(await route()).toMatchObject({ overlapBlocks: 2, requestBlocks: 2 })
    send(1, clearing)
    await until(async () => (await route()).overlapBlocks === 0)
  })
})

describe.skipIf(natsMissing)('over NATS', () => {
  let nats: NatsServer
  beforeAll(async () => {
    nats = await NatsServer.start({ jetStream: true })
  })
  afterAll(async () => nats?.[Symbol.asyncDispose]())

  test.each(engines)('$engine', async ({ engine, batch }) => {
    const events = new NatsKvEvents({ url: nats.url, reconnectWaitMs: 20 })
    cleanups.push(() => events.close())
    const connection = await nats.connect()
    cleanups.push(() => connection.close())
    // What the relay of Infera 0.1 sends: the payload as the engine wrote it, on a subject that says whose it is.
    const subject = `infera.kv.events.${natsToken('10.0.0.1:8080')}.0`
    const { route } = await routerFor(events, engine, {})
    const isTaken = async (payload: Uint8Array) => {
      const answer = await connection.request(subject, payload, { timeout: 1_000 }).catch(() => undefined)
      return answer?.string().includes('"INFERA_KV_EVENTS"') === true
    }
    // The stream is made by whoever comes first.
    while (!(await isTaken(batch)));
    await until(async () => (await route()).overlapBlocks === 2)
    expect(await route()).toMatchObject({ overlapBlocks: 2, requestBlocks: 2 })
    expect(await isTaken(clearing)).toBe(true)
    await until(async () => (await route()).overlapBlocks === 0)
  })

  test('a quiet worker that the stream has forgotten is known from the bucket of views, until it speaks', async () => {
    const connection = await nats.connect()
    cleanups.push(() => connection.close())
    const bucket = await new Kvm(connection).create('infera_kv_view')
    // routing.md 2.2: the hashes of the tokens 1 to 8 in blocks of 4, as Infera 0.1 writes them, ascending.
    const token = natsToken('10.0.0.2:8080')
    await bucket.put(`${token}.0`, bytes('92cf341839abbe30be0bcf37b6de0623bdb5ca'))
    const events = new NatsKvEvents({ url: nats.url, reconnectWaitMs: 20 })
    cleanups.push(() => events.close())
    const { route } = await routerFor(events, 'vllm', {
      worker_id: '10.0.0.2:8080',
      url: 'http://10.0.0.2:8080',
    })
    await until(async () => (await route()).overlapBlocks === 2)
    await connection.request(`infera.kv.events.${token}.0`, clearing, { timeout: 5_000 })
    await until(async () => (await route()).overlapBlocks === 0)
  })
})
