import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, test } from 'vitest'
import { LinkRefusedError, type LinkWorkerEvent, type Logger } from '../src/index.js'
import { VirtualClock } from '../src/virtual-clock.js'
import { post, textOf } from './support/bodies.js'
import { newWorker, startServer, startWorker } from './support/link-pair.js'
import { workerRecord } from './support/records.js'
import { deferred, rejection, until } from './support/wait.js'

describe('tokens of a server', () => {
  test('each of a list lets workers in', async () => {
    await using server = await startServer({ token: ['old', 'new'] })
    const workers = await Promise.all(
      ['old', 'new'].map((token) =>
        startWorker({ join: server.url, token, record: workerRecord(`${token}:1`) }),
      ),
    )
    const refused = newWorker({ join: server.url, token: 'other', record: workerRecord('other:1') })
    refused.start()
    expect(await rejection(refused.joined)).toBeInstanceOf(LinkRefusedError)
    for (const worker of workers) worker.destroy()
  })

  test('are rotated: who brought a token that is no longer accepted is closed, and comes back with the new one', async () => {
    const clock = new VirtualClock()
    const said: string[] = []
    const note = (fields: object, message: string) => said.push(`${message} ${JSON.stringify(fields)}`)
    const logger: Logger = { debug: note, info: note, warn: note, error: note }
    await using server = await startServer({ token: ['secret-old', 'secret-new'], logger })
    let token = 'secret-old'
    // Pauses that nobody sits through: it must come back without one of them.
    const backoff = { firstMs: 1_000, maxMs: 1_000_000 }
    const worker = await startWorker({
      join: server.url,
      token: async () => token,
      backoff,
      clock,
      random: () => 0.5,
      logger,
    })
    const fresh = await startWorker({
      join: server.url,
      token: 'secret-new',
      record: workerRecord('fresh:1'),
      logger,
    })
    const events: LinkWorkerEvent[] = []
    worker.on('state', (event) => events.push(event))
    const freshEvents: LinkWorkerEvent[] = []
    fresh.on('state', (event) => freshEvents.push(event))

    token = 'secret-new'
    server.link.setTokens('secret-new')
    await until(() => events.length === 1)
    expect(events[0]).toMatchObject({
      type: 'disconnected',
      reason: 'its token is no longer accepted',
      retryInMs: 500,
    })
    clock.advance(500)
    await until(() => events.at(-1)?.type === 'welcomed')
    expect(await textOf(await server.link.requests.send(worker.record, post('{}')))).toBe('ok')
    expect(freshEvents).toEqual([])
    expect(said.length).toBeGreaterThan(3)
    expect(said.join()).not.toMatch(/secret-/)
    worker.destroy()
    fresh.destroy()
  })

  test('set where there were none close who brought none', async () => {
    await using server = await startServer()
    const worker = await startWorker({ join: server.url })
    const refused = deferred<LinkWorkerEvent>()
    worker.on('state', (event) => event.type === 'refused' && refused.resolve(event))
    server.link.setTokens('secret')
    expect(await refused.promise).toMatchObject({ isFinal: true })
    expect(() => server.link.setTokens([])).toThrow(/invalid tokens/)
    worker.destroy()
  })

  test('of a function are asked for at every connection, and other ones than before close who brought the old', async () => {
    let tokens = ['old']
    await using server = await startServer({ token: () => tokens })
    const old = await startWorker({ join: server.url, token: 'old', record: workerRecord('old:1') })
    const refused = deferred()
    old.on('state', (event) => event.type === 'refused' && refused.resolve())
    tokens = ['new']
    const fresh = await startWorker({ join: server.url, token: 'new', record: workerRecord('new:1') })
    await refused.promise
    old.destroy()
    fresh.destroy()
  })

  test('that cannot be told let nobody in and throw nobody out', async () => {
    let isBroken = false
    await using server = await startServer({
      token: () => {
        if (isBroken) throw new Error('no such file')
        return 'secret'
      },
    })
    const worker = await startWorker({ join: server.url, token: 'secret' })
    isBroken = true
    const late = newWorker({ join: server.url, token: 'secret', record: workerRecord('late:1') })
    const down = deferred<LinkWorkerEvent>()
    late.on('state', (event) => event.type === 'disconnected' && down.resolve(event))
    late.start()
    expect(await down.promise).toMatchObject({ reason: 'server answered 503' })
    expect(await textOf(await server.link.requests.send(worker.record, post('{}')))).toBe('ok')
    isBroken = false
    await late.joined
    worker.destroy()
    late.destroy()
  })
})

describe('the token of a worker', () => {
  test('from a function is not given up when it is refused: it is asked for again', async () => {
    await using server = await startServer({ token: 'right' })
    const given = ['wrong', 'wrong', 'right']
    const worker = newWorker({ join: server.url, token: () => given.shift() })
    const events: string[] = []
    worker.on('state', (event) =>
      events.push(event.type === 'refused' ? `refused ${event.isFinal}` : event.type),
    )
    worker.start()
    await worker.joined
    expect(events.filter((event) => event.startsWith('refused'))).toEqual(['refused false', 'refused false'])
    worker.destroy()
  })

  test('from a function that fails or never answers costs an attempt, and no more', async () => {
    const clock = new VirtualClock()
    await using server = await startServer({ token: 'right' })
    const tokens = [
      () => {
        throw new Error('vault is sealed')
      },
      () => 'no token at all',
      () => new Promise<string>(() => {}),
      () => 'right',
    ]
    const worker = newWorker({ join: server.url, clock, token: () => tokens.shift()?.() })
    const reasons: string[] = []
    worker.on('state', (event) => event.type === 'disconnected' && reasons.push(event.reason))
    worker.start()
    await until(() => reasons.length === 1)
    clock.advance(20)
    await until(() => reasons.length === 2)
    clock.advance(20)
    await until(() => tokens.length === 1)
    clock.advance(10_000)
    await until(() => reasons.length === 3)
    clock.advance(20)
    await worker.joined
    expect(reasons).toEqual([
      'vault is sealed',
      expect.stringContaining("option 'token' gave no token"),
      'no connection within 10000 ms',
    ])
    worker.destroy()
  })
})

describe('connections that do not say who they are', () => {
  const upgrade = [
    'GET /infera/v1/link HTTP/1.1',
    'host: x',
    'connection: upgrade',
    'upgrade: websocket',
    'sec-websocket-version: 13',
    'sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==',
    '\r\n',
  ].join('\r\n')

  async function knock(port: number): Promise<{ socket: Socket; answer: string }> {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write(upgrade)
    const [bytes] = (await once(socket, 'data')) as [Buffer]
    return { socket, answer: bytes.toString('latin1').split('\r\n', 1)[0] ?? '' }
  }

  test('are few at once; further ones are put off, and those that spoke do not count', async () => {
    const clock = new VirtualClock()
    await using server = await startServer({ handshakesMax: 2, clock })
    const { port } = server.listening
    const spoken = await Promise.all(
      ['a:1', 'b:1', 'c:1'].map((id) => startWorker({ join: server.url, record: workerRecord(id) })),
    )
    const silent = [await knock(port), await knock(port)]
    expect(silent.map(({ answer }) => answer)).toEqual(Array(2).fill('HTTP/1.1 101 Switching Protocols'))
    expect((await knock(port)).answer).toBe('HTTP/1.1 503 Service Unavailable')
    silent[0]?.socket.destroy()
    await until(() => server.listening.sockets.size === 4)
    expect((await knock(port)).answer).toBe('HTTP/1.1 101 Switching Protocols')

    // Those that go on being silent make room by themselves.
    clock.advance(5_000)
    clock.advance(1_000)
    await until(() => server.listening.sockets.size === 3)
    expect((await knock(port)).answer).toBe('HTTP/1.1 101 Switching Protocols')
    for (const worker of spoken) worker.destroy()
  })

  test('are cut off when what they send outgrows a hello', async () => {
    await using server = await startServer()
    const { socket } = await knock(server.listening.port)
    // A frame of 1 MiB, the largest that is taken from a worker; its payload never comes whole.
    const head = Buffer.from([0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0])
    const piece = Buffer.alloc(16 * 1024)
    let sentBytes = 0
    const closed = once(socket, 'close')
    socket.write(head)
    while (!socket.destroyed && sentBytes < 1024 * 1024 - piece.byteLength) {
      sentBytes += piece.byteLength
      socket.write(piece)
      await new Promise((resolve) => setImmediate(resolve))
    }
    await closed
    expect(server.listening.sockets.size).toBe(0)
  })
})
