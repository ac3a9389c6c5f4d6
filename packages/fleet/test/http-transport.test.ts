import { once } from 'node:events'
import { createServer as createTcpServer, type Socket } from 'node:net'
import { gzipSync } from 'node:zlib'
import { afterEach, expect, test } from 'vitest'
import { HttpTransport, type HttpTransportOptions, type TransportRequest } from '../src/index.js'
import { VirtualClock } from '../src/virtual-clock.js'
import { bytesOf, post, textOf } from './support/bodies.js'
import { workerRecord } from './support/records.js'
import { type Listening, listen } from './support/servers.js'
import { deferred, rejection, until } from './support/wait.js'

const get: TransportRequest = { method: 'GET', path: '/metrics', headers: {}, body: new Uint8Array() }
const cleanups: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

function newTransport(options: HttpTransportOptions = {}): HttpTransport {
  const transport = new HttpTransport(options)
  cleanups.push(() => transport.close())
  return transport
}

async function worker(...args: Parameters<typeof listen>) {
  const listening = await listen(...args)
  cleanups.push(() => listening.stop())
  return { listening, record: recordOf(listening) }
}

function recordOf({ port }: Pick<Listening, 'port'>, path = '') {
  return workerRecord(`127.0.0.1:${port}`, {
    url: `http://127.0.0.1:${port}${path}`,
    request_transport: 'http',
  })
}

/** A worker that speaks bytes: called with each connection and the number of requests that began on it. */
async function rawWorker(onRequest: (socket: Socket, nth: number) => void) {
  const server = createTcpServer((socket) => {
    let nth = 0
    socket.on('error', () => socket.destroy())
    socket.on('data', (bytes) => {
      if (/^(GET|POST)/.test(bytes.toString('latin1'))) onRequest(socket, nth++)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => sockets.add(socket))
  cleanups.push(
    () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy()
        server.close(() => resolve())
      }),
  )
  return recordOf(server.address() as { port: number })
}

/** The end of a body is told a little before its connection can be used again. */
async function connectionIsFree(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve))
}

test('the base path of a worker’s url is kept', async () => {
  const { listening } = await worker((request, response) => response.end(request.url))
  const transport = newTransport()
  for (const path of ['/base', '/base/']) {
    const response = await transport.send(recordOf(listening, path), get)
    expect(await textOf(response)).toBe('/base/metrics')
  }
})

test('a worker is asked for identity, and what it compresses all the same is passed on with its encoding', async () => {
  const asked: unknown[] = []
  const { record } = await worker((request, response) => {
    asked.push(request.headers['accept-encoding'])
    response.writeHead(request.url === '/bad' ? 400 : 200, {
      'content-encoding': 'gzip',
      'x-hop': '1',
      connection: 'x-hop',
    })
    response.end(gzipSync('hello'))
  })
  const transport = newTransport()
  for (const path of ['/ok', '/bad']) {
    const response = await transport.send(record, {
      ...post('{}', path),
      headers: { 'accept-encoding': 'gzip, br' },
    })
    expect(response.headers).not.toHaveProperty('x-hop')
    expect(response.headers['content-encoding']).toBe('gzip')
    expect(await bytesOf(response)).toEqual(gzipSync('hello'))
  }
  expect(asked).toEqual(['identity', 'identity'])
})

test('headers of the caller’s own connection do not reach the worker', async () => {
  let seen: Record<string, unknown> = {}
  const { record } = await worker((request, response) => {
    seen = request.headers
    response.end()
  })
  const headers = {
    host: 'client',
    expect: '100-continue',
    te: 'x',
    'content-length': '999',
    'x-request-id': 'r',
  }
  await textOf(await newTransport().send(record, { ...post('{}'), headers }))
  expect(seen).toMatchObject({ 'x-request-id': 'r', 'content-length': '2' })
  expect(seen).not.toHaveProperty('expect')
  expect(seen).not.toHaveProperty('te')
  expect(seen.host).toMatch(/^127\.0\.0\.1:/)
})

test('a body cut short of its content-length, or of its last chunk, is broken', async () => {
  const heads = [
    'content-length: 10\r\n\r\nhello',
    'content-length: 10\r\nconnection: close\r\n\r\nhello',
    'transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n',
  ]
  for (const head of heads) {
    const record = await rawWorker((socket) => socket.end(`HTTP/1.1 200 OK\r\n${head}`))
    const response = await newTransport().send(record, post('{}'))
    expect(await rejection(textOf(response))).toMatchObject({
      code: 'INFERA_FLEET_BROKEN',
      workerId: record.worker_id,
    })
  }
})

test('an answer that is no HTTP is no answer', async () => {
  const record = await rawWorker((socket) => socket.end('SSH-2.0-worker\r\n'))
  expect(await rejection(newTransport().send(record, post('{}')))).toMatchObject({
    code: 'INFERA_FLEET_UNREACHABLE',
  })
})

test('a worker without an HTTP address is unreachable', async () => {
  const failure = await rejection(newTransport().send(workerRecord('w:1'), post('{}')))
  expect(failure).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
})

test('a GET on a connection that was closed on reuse is sent once more, on a fresh one', async () => {
  let requests = 0
  const record = await rawWorker((socket, nth) => {
    requests += 1
    // The second request on a connection meets its end.
    if (nth === 0) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok')
    else socket.destroy()
  })
  const transport = newTransport({ keepAliveTimeoutMs: 60_000 })
  for (const count of [1, 3]) {
    expect(await textOf(await transport.send(record, get))).toBe('ok')
    expect(requests).toBe(count)
    await connectionIsFree()
  }
})

test('a POST is never sent twice, though its connection was closed on reuse', async () => {
  let requests = 0
  const record = await rawWorker((socket, nth) => {
    requests += 1
    if (nth === 0) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok')
    else socket.destroy()
  })
  const transport = newTransport({ keepAliveTimeoutMs: 60_000 })
  expect(await textOf(await transport.send(record, post('{}')))).toBe('ok')
  await connectionIsFree()
  expect(await rejection(transport.send(record, post('{}')))).toMatchObject({
    code: 'INFERA_FLEET_UNREACHABLE',
  })
  expect(requests).toBe(2)
})

test('a GET that a worker drops on a fresh connection is not repeated', async () => {
  let requests = 0
  const record = await rawWorker((socket) => {
    requests += 1
    socket.destroy()
  })
  expect(await rejection(newTransport().send(record, get))).toMatchObject({
    code: 'INFERA_FLEET_UNREACHABLE',
  })
  expect(requests).toBe(1)
})

test('a connection is not kept where the worker’s own limit is too near, and is where it is not', async () => {
  for (const [timeout, connections] of [
    ['1', 5],
    ['60', 1],
  ] as const) {
    let opened = 0
    const record = await rawWorker((socket, nth) => {
      if (nth === 0) opened += 1
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: timeout=${timeout}\r\n\r\nok`)
    })
    const transport = newTransport()
    for (let count = 0; count < 5; count++) {
      await textOf(await transport.send(record, post('{}')))
      await connectionIsFree()
    }
    expect(opened).toBe(connections)
  }
})

test('silence beyond the idle limit is a timeout, before the headers and after them', async () => {
  const clock = new VirtualClock()
  const arrived = [deferred(), deferred()]
  const { record } = await worker((request, response) => {
    if (request.url === '/body') response.write('begun')
    arrived[request.url === '/body' ? 1 : 0]?.resolve()
  })
  const transport = newTransport({ clock, idleTimeoutMs: 1_000 })
  const unanswered = rejection(transport.send(record, post('{}', '/none')))
  await arrived[0]?.promise
  clock.advance(1_000)
  const timeout = {
    code: 'INFERA_FLEET_TIMEOUT',
    message: expect.stringContaining('silent for more than 1000 ms'),
  }
  expect(await unanswered).toMatchObject(timeout)

  const response = await transport.send(record, post('{}', '/body'))
  const body = response.body[Symbol.asyncIterator]()
  await body.next()
  // The reader's own slowness is not the worker's silence.
  clock.advance(10_000)
  const next = rejection(body.next())
  await until(() => clock.pendingTimers === 1)
  clock.advance(999)
  expect(clock.pendingTimers).toBe(1)
  clock.advance(1)
  expect(await next).toMatchObject(timeout)
  expect(clock.pendingTimers).toBe(0)
})

test('a request beyond the total limit is a timeout, however busy it is', async () => {
  const clock = new VirtualClock()
  const { record } = await worker((_request, response) => {
    const timer = setInterval(() => response.write('x'), 1)
    response.on('close', () => clearInterval(timer))
  })
  const transport = newTransport({ clock, totalTimeoutMs: 5_000 })
  const response = await transport.send(record, post('{}'))
  const body = response.body[Symbol.asyncIterator]()
  await body.next()
  clock.advance(5_000)
  const drained = (async () => {
    while (!(await body.next()).done);
  })()
  expect(await rejection(drained)).toMatchObject({ code: 'INFERA_FLEET_TIMEOUT' })
})

test('without limits no timer runs, however long a worker is silent', async () => {
  const clock = new VirtualClock()
  const gate = deferred()
  const { record } = await worker((_request, response) => void gate.promise.then(() => response.end('late')))
  const response = newTransport({ clock }).send(record, post('{}'))
  await connectionIsFree()
  expect(clock.pendingTimers).toBe(0)
  gate.resolve()
  expect(await textOf(await response)).toBe('late')
})

test('requests that fail, break off or are aborted unread leave no connections behind', async () => {
  const { listening, record } = await worker((request, response) => {
    if (request.url === '/fail') response.writeHead(500).end('x'.repeat(100_000))
    else response.write('token')
  })
  const transport = newTransport()
  for (let count = 0; count < 100; count++) {
    await textOf(await transport.send(record, post('{}', '/fail')))
    for await (const _chunk of (await transport.send(record, post('{}', '/stream'))).body) break
    const controller = new AbortController()
    await transport.send(record, post('{}', '/stream'), { signal: controller.signal })
    controller.abort()
  }
  // What is left is idle and was left by answers that were read; one may be opened while the one before is not free yet.
  await until(() => listening.sockets.size <= 2)
})

test('500 requests are in flight at one worker at once', async () => {
  const everybody = deferred()
  let inFlight = 0
  const { record } = await worker((_request, response) => {
    inFlight += 1
    if (inFlight === 500) everybody.resolve()
    void everybody.promise.then(() => response.end('ok'))
  })
  const transport = newTransport()
  const texts = await Promise.all(
    Array.from({ length: 500 }, async () => textOf(await transport.send(record, post('{}')))),
  )
  expect(texts.every((text) => text === 'ok')).toBe(true)
})
