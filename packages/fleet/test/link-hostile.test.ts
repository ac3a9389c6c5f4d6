import { once } from 'node:events'
import { connect } from 'node:net'
import { expect, test } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { LINK_PATH, type LinkWorkerEvent, type Logger, silentLogger } from '../src/index.js'
import { encodeFrame } from '../src/link/codec.js'
import type { LinkFrame } from '../src/link/frames.js'
import { VirtualClock } from '../src/virtual-clock.js'
import { post, textOf } from './support/bodies.js'
import { newWorker, type RunningServer, startServer, startWorker } from './support/link-pair.js'
import { serverRecord, workerRecord } from './support/records.js'
import { listen } from './support/servers.js'
import { deferred, rejection, until } from './support/wait.js'

const encode = (frame: LinkFrame) => encodeFrame(frame, 1 << 20)
const requestHead = { method: 'GET' as const, path: '/', headers: {}, bodyBytes: 0, creditBytes: 1_000 }
const helloOf = (workerId: string, more: Record<string, unknown> = {}) =>
  encode({
    type: 'hello',
    head: { protocol: 1, version: '', record: workerRecord(workerId), settings: {}, kvEvents: true, ...more },
  })

const hostile: [string, (hello: Uint8Array) => (Uint8Array | string)[], number][] = [
  ['an empty message', () => [new Uint8Array()], 1002],
  ['a text message', () => ['hello'], 1002],
  ['random bytes', () => [Uint8Array.from({ length: 64 }, (_, index) => (index * 37) % 256)], 1002],
  ['a frame type that does not exist', () => [Uint8Array.of(99, 0, 0, 0, 0, 0, 0, 0)], 1002],
  ['a frame before hello', () => [encode({ type: 'drain' })], 1002],
  ['two hellos', (hello) => [hello, hello], 1002],
  ['a frame that only servers send', (hello) => [hello, encode({ type: 'cancel', streamId: 1 })], 0],
  [
    'a welcome to the server',
    (hello) => [hello, encode({ type: 'welcome', head: { server: {}, settings: {} } })],
    1002,
  ],
  ['a frame beyond the bound', (hello) => [hello, new Uint8Array((1 << 20) + 1)], 1009],
  [
    'an impossible load',
    (hello) => [hello, rawJson(16, { runningRequests: -1, waitingRequests: 0, kvUsageRatio: 2 })],
    1002,
  ],
]

test.each(hostile)('a peer that sends %s harms nobody else', async (_name, messages, code) => {
  const warnings: unknown[] = []
  const logger: Logger = { ...silentLogger, warn: (fields) => warnings.push(fields) }
  await using server = await startServer({ logger })
  const honest = await startWorker({ join: server.url })
  const ws = await open(server)
  for (const message of messages(helloOf('evil:1'))) ws.send(message)
  if (code === 0) {
    // Its stream is not known, so it crossed the stream's end, and is ignored.
    await until(() => server.link.kvEvents.serves(workerRecord('evil:1')))
    ws.terminate()
  } else {
    const [closed] = await once(ws, 'close')
    expect(closed).toBe(code)
    expect(warnings).toContainEqual(expect.objectContaining({ code, reason: expect.stringMatching(/./) }))
  }
  expect(await textOf(await server.link.requests.send(honest.record, post('{}')))).toBe('ok')
  honest.destroy()
})

test('frames in a wrong order within a stream end the connection and fail its requests', async () => {
  const wrong: LinkFrame[][] = [
    [{ type: 'data', streamId: 1, bytes: Uint8Array.of(1) }],
    [{ type: 'end', streamId: 1 }],
    [
      { type: 'response', streamId: 1, head: { status: 200, headers: {} } },
      { type: 'response', streamId: 1, head: { status: 200, headers: {} } },
    ],
    [{ type: 'kvBatch', streamId: 1, first: true, last: true, sequence: 0, bytes: Uint8Array.of(1) }],
    [{ type: 'credit', streamId: 1, bytes: 1 }],
    // Two bytes of body are out.
    [{ type: 'credit', streamId: 0, bytes: 3 }],
    [
      { type: 'response', streamId: 1, head: { status: 200, headers: {} } },
      // Beyond the credit of 1 KiB.
      { type: 'data', streamId: 1, bytes: new Uint8Array(1_000) },
    ],
  ]
  const limits = { streamWindowBytes: 1_024, streamWindowMinBytes: 1_024 }
  for (const frames of wrong) {
    await using server = await startServer({ limits })
    const ws = await open(server)
    ws.send(helloOf('evil:1'))
    await once(ws, 'message')
    const response = server.link.requests.send(workerRecord('evil:1'), post('{}'))
    const failure = rejection(response.then(textOf))
    await once(ws, 'message')
    for (const frame of frames) ws.send(encode(frame))
    const [closed] = await once(ws, 'close')
    expect(closed).toBe(1002)
    expect(await failure).toMatchObject({ code: expect.stringMatching(/UNREACHABLE|BROKEN/) })
  }
})

test('events with a gap are asked for again, and end in a fresh snapshot', async () => {
  const clock = new VirtualClock()
  await using server = await startServer({ clock })
  const ws = await open(server)
  const subscribed: number[] = []
  const snapshot = (streamId: number, sequence: number) =>
    encode({ type: 'kvSnapshot', streamId, first: true, last: true, sequence, bytes: new Uint8Array() })
  const batch = (streamId: number, sequence: number) =>
    encode({ type: 'kvBatch', streamId, first: true, last: true, sequence, bytes: Uint8Array.of(sequence) })
  ws.on('message', (data: Buffer) => {
    if (data[0] === 12) subscribed.push(data.readUInt32LE(4))
  })
  ws.send(helloOf('w:1'))
  await once(ws, 'message')
  const events = server.link.kvEvents.subscribe(workerRecord('w:1'))[Symbol.asyncIterator]()
  const first = events.next()
  await until(() => subscribed.length === 1)
  const [one] = subscribed as [number]
  ws.send(snapshot(one, 4))
  expect((await first).value).toMatchObject({ type: 'snapshot', sequence: 4 })
  // A batch that the snapshot held already is not told twice.
  for (const sequence of [4, 5, 7, 8]) ws.send(batch(one, sequence))
  expect((await events.next()).value).toMatchObject({ type: 'batch', sequence: 5 })
  const next = events.next()
  await until(() => clock.pendingTimers > 2)
  clock.advance(500)
  await until(() => subscribed.length === 2)
  ws.send(batch(one, 9))
  ws.send(snapshot(subscribed[1] as number, 9))
  expect((await next).value).toMatchObject({ type: 'snapshot', sequence: 9 })
  ws.terminate()
})

test('a connection without hello ends at the limit', async () => {
  const clock = new VirtualClock()
  await using server = await startServer({ clock, limits: { helloTimeoutMs: 1_000 } })
  const ws = await open(server)
  await until(() => clock.pendingTimers >= 3)
  clock.advance(1_000)
  const [code, reason] = await once(ws, 'close')
  expect([code, String(reason)]).toEqual([1002, 'no hello within 1000 ms'])
})

test('bytes that are no HTTP do not disturb the listener', async () => {
  await using server = await startServer()
  const socket = connect(server.listening.port, '127.0.0.1')
  socket.on('error', () => socket.destroy())
  socket.write(Buffer.from([0, 255, 1, 2, 3, 10, 10]))
  socket.resume()
  await once(socket, 'close')
  const worker = await startWorker({ join: server.url })
  worker.destroy()
})

test('a peer of another protocol version is refused with both versions', async () => {
  await using server = await startServer()
  const ws = await open(server)
  ws.send(helloOf('w:1', { protocol: 2 }))
  const [message] = await once(ws, 'message')
  expect(JSON.parse((message as Buffer).subarray(8).toString())).toMatchObject({
    setting: 'protocol',
    server: 1,
    worker: 2,
  })
  ws.terminate()
})

test('a peer that reads nothing is cut off when too much waits for it', async () => {
  await using server = await startServer({ limits: { socketBufferBytesMax: 1_000_000 } })
  const ws = await open(server)
  ws.send(helloOf('evil:1'))
  await once(ws, 'message')
  ws.pause()
  const evil = workerRecord('evil:1')
  const large = { ...post(''), headers: { 'x-large': 'x'.repeat(60_000) } }
  const failures: Promise<unknown>[] = []
  while (server.link.kvEvents.serves(evil)) {
    failures.push(rejection(server.link.requests.send(evil, large)))
    await new Promise((resolve) => setImmediate(resolve))
  }
  for (const failure of failures) expect(await failure).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
  ws.terminate()
})

test.each([
  ['garbage', () => Uint8Array.of(1, 2, 3)],
  ['a request before welcome', () => encode({ type: 'request', streamId: 1, head: requestHead })],
  ['a welcome without a server', () => encode({ type: 'welcome', head: { server: {}, settings: {} } })],
])('a worker leaves a server that answers hello with %s, and tries again later', async (_name, reply) => {
  await using fake = await fakeServer((ws) => ws.once('message', () => ws.send(reply())))
  const worker = newWorker({ join: fake.url })
  const states: LinkWorkerEvent[] = []
  worker.on('state', (event) => states.push(event))
  worker.start()
  await until(() => states.filter((event) => event.type === 'disconnected').length === 2)
  expect(fake.closeCodes[0]).toBe(1002)
  worker.destroy()
})

test('a worker ends a stream id that is used twice, and ignores frames of streams that it does not know', async () => {
  const requested = deferred<WebSocket>()
  await using fake = await fakeServer((ws) => {
    ws.once('message', () => {
      ws.send(encode({ type: 'welcome', head: { server: serverRecord('s'), settings: {} } }))
      for (const type of ['cancel', 'end'] as const) ws.send(encode({ type, streamId: 77 }))
      ws.send(encode({ type: 'data', streamId: 77, bytes: Uint8Array.of(1) }))
      requested.resolve(ws)
    })
  })
  const worker = await startWorker({ join: fake.url, handler: () => new Promise(() => {}) })
  const ws = await requested.promise
  const request = encode({ type: 'request', streamId: 1, head: requestHead })
  ws.send(request)
  ws.send(encode({ type: 'end', streamId: 1 }))
  await until(() => worker.runningRequests === 1)
  ws.send(request)
  await until(() => fake.closeCodes.length === 1)
  expect(fake.closeCodes).toEqual([1002])
  worker.destroy()
})

test.each<[string, LinkFrame[]]>([
  ['credit for the connection', [{ type: 'credit', streamId: 0, bytes: 1 }]],
  [
    'more credit than there are bytes to count',
    [
      { type: 'request', streamId: 1, head: { ...requestHead, creditBytes: 0xffff_ffff } },
      { type: 'credit', streamId: 1, bytes: 1 },
    ],
  ],
  [
    'a body beyond the worker’s limit',
    [{ type: 'request', streamId: 1, head: { ...requestHead, bodyBytes: 1_001 } }],
  ],
  [
    'bodies beyond what the worker holds of all together',
    [1, 2].map((streamId) => ({ type: 'request', streamId, head: { ...requestHead, bodyBytes: 1_000 } })),
  ],
  [
    'more of a body than its head states',
    [
      { type: 'request', streamId: 1, head: { ...requestHead, bodyBytes: 1 } },
      { type: 'data', streamId: 1, bytes: new Uint8Array(2) },
    ],
  ],
  [
    'less of a body than its head states',
    [
      { type: 'request', streamId: 1, head: { ...requestHead, bodyBytes: 1 } },
      { type: 'end', streamId: 1 },
    ],
  ],
])('a worker leaves a server that sends %s', async (_name, frames) => {
  await using fake = await fakeServer((ws) => {
    ws.once('message', () => {
      ws.send(encode({ type: 'welcome', head: { server: serverRecord('s'), settings: {} } }))
      for (const frame of frames) ws.send(encode(frame))
    })
  })
  const limits = { requestBodyBytesMax: 1_000, requestBodiesBytesMax: 1_500 }
  const worker = await startWorker({ join: fake.url, limits, handler: () => new Promise(() => {}) })
  await until(() => fake.closeCodes.length === 1)
  expect(fake.closeCodes).toEqual([1002])
  worker.destroy()
})

function rawJson(type: number, value: unknown): Uint8Array {
  return Buffer.concat([Buffer.of(type, 0, 0, 0, 0, 0, 0, 0), Buffer.from(JSON.stringify(value))])
}

async function open(server: RunningServer): Promise<WebSocket> {
  const ws = new WebSocket(server.url + LINK_PATH)
  ws.on('error', () => {
    // The server cuts these connections; the tests look at how.
  })
  await once(ws, 'open')
  return ws
}

/** A WebSocket server that speaks as the test wants. */
async function fakeServer(onConnection: (ws: WebSocket) => void) {
  const listening = await listen()
  const closeCodes: number[] = []
  const server = new WebSocketServer({ server: listening.server, path: LINK_PATH })
  server.on('connection', (ws) => {
    ws.on('close', (code) => closeCodes.push(code))
    onConnection(ws)
  })
  return {
    url: `ws://127.0.0.1:${listening.port}`,
    closeCodes,
    async [Symbol.asyncDispose]() {
      server.close()
      await listening.stop()
    },
  }
}
