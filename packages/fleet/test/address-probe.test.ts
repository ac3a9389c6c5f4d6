import { once } from 'node:events'
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { httpAddressProber, parseWorkerRecord } from '../src/index.js'

const servers: Server[] = []
afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.close()
    if ('closeAllConnections' in server) (server as ReturnType<typeof createHttpServer>).closeAllConnections()
  }
})

async function listening(server: Server): Promise<string> {
  servers.push(server)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const http = (listener: RequestListener) => listening(createHttpServer(listener))

function probe(url: string, more: Record<string, unknown> = {}, signal = new AbortController().signal) {
  const record = parseWorkerRecord({ worker_id: 'w:1', url, model_name: 'm', ...more })
  return httpAddressProber(record, { signal })
}

test('an engine is reached, by its health or by its models', async () => {
  expect(await probe(await http((_req, res) => res.end()))).toBeUndefined()
  const models = await http((req, res) => res.writeHead(req.url === '/v1/models' ? 200 : 404).end('{}'))
  expect(await probe(models)).toBeUndefined()
  // Not well, but there: that is for its own record to say.
  expect(await probe(await http((_req, res) => res.writeHead(503).end()))).toBeUndefined()
})

test('a port on which nothing listens is refused', async () => {
  const server = createServer()
  const url = await listening(server)
  server.close()
  await once(server, 'close')
  const problem = await probe(url)
  expect(problem).toMatchObject({ code: 'address_refused', effect: 'unroutable' })
  expect(problem?.message).toBe(
    `${url} cannot be reached: nothing listens there: check its port, and that the engine binds that address (ECONNREFUSED)`,
  )
})

test('what answers there and is no engine is a wrong port', async () => {
  const elsewhere = await http((_req, res) => res.writeHead(404).end())
  expect((await probe(elsewhere))?.message).toMatch(/is no engine .*: check its port/)
  const noHttp = await listening(createServer((socket) => socket.end('220 mail ready\r\n')))
  expect(await probe(noHttp)).toMatchObject({ code: 'address_wrong_port' })
})

test('an address that is only one to listen on is named before anything is asked', async () => {
  for (const url of ['http://0.0.0.0:8000', 'http://[::]:8000']) {
    const problem = await probe(url)
    expect(problem).toMatchObject({ code: 'address_unroutable' })
    expect(problem?.message).toMatch(/--advertise-host/)
  }
})

test('an address that does not answer is told after its time', async () => {
  const asked = new AbortController()
  const url = await http(() => asked.abort(new Error('no answer in time')))
  expect(await probe(url, {}, asked.signal)).toMatchObject({ code: 'address_timeout' })
})

test('a name that does not exist is named', async () => {
  expect(await probe('http://worker.invalid:8000')).toMatchObject({ code: 'address_unknown_host' })
})

test('a worker that is not reached by HTTP is not asked', async () => {
  expect(await probe('http://127.0.0.1:1', { request_transport: 'nats' })).toBeUndefined()
  expect(await probe('link://w:1', { request_transport: 'link' })).toBeUndefined()
})
