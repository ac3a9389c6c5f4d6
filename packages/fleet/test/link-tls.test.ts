import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type ServerOptions } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import {
  EmbeddedDiscovery,
  InvalidFleetOptionsError,
  LinkServer,
  type LinkWorkerEvent,
  type LinkWorkerOptions,
} from '../src/index.js'
import { post, textOf } from './support/bodies.js'
import { newWorker, startServer } from './support/link-pair.js'
import { serverRecord } from './support/records.js'
import { deferred } from './support/wait.js'

const pem = (name: string) =>
  readFileSync(new URL(`./vectors/tls/test-only-${name}`, import.meta.url), 'utf8')
const ca = pem('ca.pem')
const otherCa = pem('other-ca.pem')
const serverIdentity = { cert: pem('server.pem'), key: pem('server.key') }
const workerIdentity = { cert: pem('worker.pem'), key: pem('worker.key') }

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function startTlsServer(options: ServerOptions = {}) {
  const http = createServer({ ...serverIdentity, ...options })
  const link = new LinkServer({ discovery: new EmbeddedDiscovery(), serverRecord: serverRecord('s') })
  link.attach(http)
  const names: unknown[] = []
  http.on('secureConnection', (socket: TLSSocket) => {
    names.push(socket.servername)
    cleanups.push(() => socket.destroy())
  })
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  cleanups.push(async () => {
    link.destroy()
    await new Promise((resolve) => http.close(resolve))
  })
  const { port } = http.address() as AddressInfo
  return { link, port, names, url: `wss://127.0.0.1:${port}` }
}

/** Starts a worker that is not let in. @returns why not */
async function whyNot(
  options: Pick<LinkWorkerOptions, 'join'> & Partial<LinkWorkerOptions>,
): Promise<string> {
  const worker = newWorker(options)
  cleanups.push(() => worker.destroy())
  const down = deferred<string>()
  worker.on('state', (event: LinkWorkerEvent) => event.type === 'disconnected' && down.resolve(event.reason))
  worker.start()
  return down.promise
}

async function join(options: Pick<LinkWorkerOptions, 'join'> & Partial<LinkWorkerOptions>) {
  const worker = newWorker(options)
  cleanups.push(() => worker.destroy())
  worker.start()
  await worker.joined
  return worker
}

describe('a link over TLS', () => {
  test('carries requests once the worker trusts the authority of the server', async () => {
    const server = await startTlsServer()
    const worker = await join({ join: server.url.replace('wss', 'https'), tls: { ca } })
    expect(await textOf(await server.link.requests.send(worker.record, post('{}')))).toBe('ok')
  })

  test('asks for the name in the url, whichever address that name has', async () => {
    const server = await startTlsServer()
    const resolve = async () => [{ address: '127.0.0.1', family: 4 }]
    await join({ join: `wss://server.test:${server.port}`, tls: { ca: [otherCa, ca] }, resolve })
    expect(server.names).toEqual(['server.test'])
  })

  test.each([
    ['no authority of its own', undefined],
    ['the wrong authority', { ca: otherCa }],
  ])('is refused by a worker with %s, and the reason says what to set', async (_what, tls) => {
    const server = await startTlsServer()
    const reason = await whyNot({ join: server.url, ...(tls ? { tls } : {}) })
    expect(reason).toMatch(/set tls\.ca to the one that signed it/)
  })

  test('is refused by a worker that joins under another name, unless that is set', async () => {
    const server = await startTlsServer()
    const resolve = async () => [{ address: '127.0.0.1', family: 4 }]
    const url = `wss://elsewhere.test:${server.port}`
    expect(await whyNot({ join: url, tls: { ca }, resolve })).toMatch(/set tls\.servername/)
    await join({ join: url, tls: { ca, servername: 'server.test' }, resolve })
    expect(server.names.at(-1)).toBe('server.test')
  })

  test('shows the certificate of the worker to a server that wants one', async () => {
    const server = await startTlsServer({ ca, requestCert: true, rejectUnauthorized: true })
    const worker = await join({ join: server.url, tls: { ca, ...workerIdentity } })
    expect(await textOf(await server.link.requests.send(worker.record, post('{}')))).toBe('ok')
  })

  test('without the certificate that the server wants, the reason says what to set', async () => {
    const server = await startTlsServer({ ca, requestCert: true, rejectUnauthorized: true })
    expect(await whyNot({ join: server.url, tls: { ca } })).toMatch(/set tls\.cert and tls\.key/)
  })

  test('to a server that speaks none, the reason says so', async () => {
    await using server = await startServer()
    const reason = await whyNot({ join: server.url.replace('ws:', 'wss:'), tls: { ca } })
    expect(reason).toMatch(/does not speak TLS on that port; join it with a ws URL/)
  })

  test.each([
    [{ ca: 'no certificate' }, /LinkWorker: tls\.ca: must be PEM that fits/],
    [{ cert: workerIdentity.cert }, /LinkWorker: tls\.key: cert and key go together/],
    [{ key: workerIdentity.key }, /LinkWorker: tls\.cert: cert and key go together/],
    [{ cert: serverIdentity.cert, key: workerIdentity.key }, /LinkWorker: tls\.key: must be PEM that fits/],
    [{ rejectUnauthorized: false } as never, /LinkWorker: tls: .*rejectUnauthorized/],
  ])('options that cannot work are errors at once (%#)', (tls, message) => {
    const make = () => newWorker({ join: 'wss://server', tls })
    expect(make).toThrow(InvalidFleetOptionsError)
    expect(make).toThrow(message)
    expect(make).not.toThrow(/PRIVATE KEY/)
  })
})
