import { describe, expect, test } from 'vitest'
import {
  type FleetChange,
  LinkRefusedError,
  type LinkWorkerEvent,
  type Logger,
  silentLogger,
} from '../src/index.js'
import { VirtualClock } from '../src/virtual-clock.js'
import { answer, chunks, post, textOf, utf8 } from './support/bodies.js'
import { newWorker, type RunningServer, startServer, startWorker } from './support/link-pair.js'
import { serverRecord, workerRecord } from './support/records.js'
import { aborted, deferred, rejection, until } from './support/wait.js'

describe('joining', () => {
  test('a welcome names the server and its settings, and puts the worker into the registry', async () => {
    await using server = await startServer({
      settingsFor: (record) => ({ block_size: 16, model: record.model_name }),
    })
    const worker = newWorker({
      join: server.url.replace('ws:', 'http:'),
      settings: { block_size: 16, seed: 1 },
    })
    worker.start()
    expect(await worker.joined).toEqual([
      {
        url: `${server.url}/infera/v1/link`,
        server: expect.objectContaining({ server_id: 's' }),
        settings: { block_size: 16, model: 'm' },
      },
    ])
    expect(await present(server)).toEqual(['w:1 active'])
    worker.destroy()
  })

  test('a worker with another setting is refused for good, told which and both values; the server warns once', async () => {
    const warnings: string[] = []
    const logger: Logger = {
      ...silentLogger,
      warn: (fields, message) => warnings.push(`${message} ${fields.setting}`),
    }
    await using server = await startServer({ settingsFor: () => ({ a: 1, block_size: 16, seed: 7 }), logger })
    const worker = newWorker({ join: server.url, settings: { block_size: 64, seed: 8 } })
    const states: string[] = []
    worker.on('state', (event) => states.push(event.type))
    worker.start()
    const error = await rejection(worker.joined)
    expect(error).toBeInstanceOf(LinkRefusedError)
    expect(error).toMatchObject({
      code: 'INFERA_FLEET_REFUSED',
      setting: { name: 'block_size', server: 16, worker: 64 },
    })
    expect(String(error)).toMatch(/'block_size' differs: the server has 16, the worker 64/)
    await until(() => states.includes('disconnected'))
    expect(states).toEqual(['connecting', 'refused', 'disconnected'])
    expect(warnings).toEqual(['link refused block_size'])
    expect(await present(server)).toEqual([])
    expect(server.link.refused()).toMatchObject([
      { workerId: worker.record.worker_id, reason: expect.stringContaining('the worker 64'), count: 1 },
    ])
    await worker.close()
  })

  test('a refused worker comes back when it is told to retry', async () => {
    let blockSize = 16
    await using server = await startServer({ settingsFor: () => ({ block_size: blockSize }) })
    const worker = newWorker({ join: server.url, settings: { block_size: 64 }, retriesRefusal: true })
    worker.on('state', (event) => {
      if (event.type !== 'refused') return
      expect(server.link.refused()).toHaveLength(1)
      blockSize = 64
    })
    worker.start()
    await worker.joined
    expect(server.link.refused()).toEqual([])
    worker.destroy()
  })

  test('an unusable record is refused with the field that is wrong', async () => {
    await using server = await startServer()
    const worker = newWorker({ join: server.url })
    Object.assign(worker.record, { model_name: '' })
    worker.start()
    expect(String(await rejection(worker.joined))).toContain('model_name')
    await worker.close()
  })

  test.each([undefined, 'wrong', 'secret2', 'secre'])(
    'token %s is refused where another is wanted',
    async (token) => {
      await using server = await startServer({ token: 'secret' })
      const worker = newWorker({ join: server.url, ...(token === undefined ? {} : { token }) })
      worker.start()
      const error = await rejection(worker.joined)
      expect(error).toBeInstanceOf(LinkRefusedError)
      expect(String(error)).not.toContain('secret')
      expect(await present(server)).toEqual([])
      await worker.close()
    },
  )

  test('the right token is let in', async () => {
    await using server = await startServer({ token: 'secret' })
    const worker = await startWorker({ join: server.url, token: 'secret' })
    expect(await ask(server, worker.record)).toBe('ok')
    worker.destroy()
  })

  test('a new connection of a worker takes over: the older one is closed and its requests end', async () => {
    await using server = await startServer()
    const older = await startWorker({
      join: server.url,
      backoff: { firstMs: 60_000, maxMs: 60_000 },
      handler: async (_request, { signal }) => {
        await aborted(signal)
        throw new Error('aborted')
      },
    })
    const changes = record(server)
    await until(() => changes.length === 1)
    const unanswered = rejection(server.link.requests.send(older.record, post('{}')))
    const taken = deferred<LinkWorkerEvent>()
    older.on('state', (event) => taken.resolve(event))
    const newer = await startWorker({ join: server.url, handler: async () => answer('newer') })
    expect(await unanswered).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
    expect(await taken.promise).toMatchObject({
      type: 'disconnected',
      reason: expect.stringContaining('took over'),
    })
    expect(await ask(server, newer.record)).toBe('newer')
    expect(changes).toEqual(['snapshot w:1', 'removed w:1 leaseLost', 'put w:1 active'])
    older.destroy()
    newer.destroy()
  })

  test('a worker joined to two servers serves both, and outlives one of them', async () => {
    const first = await startServer()
    await using second = await startServer({ serverRecord: serverRecord('other') })
    const worker = await startWorker({ join: [first.url, second.url, `${second.url}/`] })
    expect(await worker.joined).toHaveLength(2)
    expect(await Promise.all([ask(first, worker.record), ask(second, worker.record)])).toEqual(['ok', 'ok'])
    await first[Symbol.asyncDispose]()
    expect(await ask(second, worker.record)).toBe('ok')
    worker.destroy()
  })

  test('upgrades on other paths are left to other listeners, and are 404 without any', async () => {
    await using server = await startServer()
    const worker = newWorker({ join: `${server.url}/elsewhere`, backoff: { firstMs: 60_000, maxMs: 60_000 } })
    const down = deferred<LinkWorkerEvent>()
    worker.on('state', (event) => event.type === 'disconnected' && down.resolve(event))
    worker.start()
    expect(await down.promise).toMatchObject({ reason: 'server answered 404' })
    worker.destroy()

    const elsewhere = deferred<string | undefined>()
    server.listening.server.on('upgrade', (request, socket) => {
      if (request.url !== '/elsewhere') return
      elsewhere.resolve(request.url)
      socket.destroy()
    })
    const other = newWorker({ join: `${server.url}/elsewhere` })
    other.start()
    expect(await elsewhere.promise).toBe('/elsewhere')
    other.destroy()
    const joined = await startWorker({ join: server.url })
    joined.destroy()
  })

  test('a worker whose hello or whose welcome does not fit keeps trying, and leaves nothing behind', async () => {
    let isLarge = true
    await using server = await startServer({
      settingsFor: () => ({ large: isLarge ? 'x'.repeat(70_000) : 'x' }),
    })
    const reasons: string[] = []
    const watchReasons = (event: LinkWorkerEvent) =>
      event.type === 'disconnected' && reasons.push(event.reason)
    const tooLarge = newWorker({ join: server.url, settings: { mine: 'x'.repeat(70_000) } })
    tooLarge.on('state', watchReasons)
    tooLarge.start()
    await until(() => reasons.length === 1)
    tooLarge.destroy()
    expect(reasons[0]).toMatch(/^hello head of \d+ bytes exceeds 65536$/)

    const worker = newWorker({ join: server.url })
    worker.on('state', watchReasons)
    worker.start()
    await until(() => reasons.some((reason) => reason.startsWith('welcome head of')))
    isLarge = false
    await worker.joined
    expect(await present(server)).toEqual(['w:1 active'])
    worker.destroy()
  })

  test('a token that fits in no header is an error of its option', () => {
    for (const token of ['', 'two words', 'line\nbreak', 'ü']) {
      expect(() => newWorker({ join: 'ws://server', token })).toThrow(/LinkWorker: token/)
    }
  })

  test('connections beyond connectionsMax are put off, and come in when there is room', async () => {
    await using server = await startServer({ connectionsMax: 1 })
    const one = await startWorker({ join: server.url, record: workerRecord('one:1') })
    const two = newWorker({ join: server.url, record: workerRecord('two:1') })
    const down = deferred<LinkWorkerEvent>()
    two.on('state', (event) => event.type === 'disconnected' && down.resolve(event))
    two.start()
    expect(await down.promise).toMatchObject({ reason: 'server answered 503' })
    one.destroy()
    await two.joined
    two.destroy()
  })
})

describe('staying', () => {
  test('a restarted server learns its workers again by itself, and requests flow as before', async () => {
    const first = await startServer()
    const port = first.listening.port
    const workers = await Promise.all(
      ['a:1', 'b:1', 'c:1'].map((id) => startWorker({ join: first.url, record: workerRecord(id) })),
    )
    await first[Symbol.asyncDispose]()
    await using second = await startServer({}, port)
    await until3(second)
    expect(await present(second)).toEqual(['a:1 active', 'b:1 active', 'c:1 active'])
    for (const worker of workers) expect(await ask(second, worker.record)).toBe('ok')
    for (const worker of workers) worker.destroy()
  })

  test('a worker that is cut off leaves as lost, comes back, and its handlers are aborted', async () => {
    await using server = await startServer()
    const signals: AbortSignal[] = []
    const worker = await startWorker({
      join: server.url,
      handler: async (_request, { signal }) => {
        signals.push(signal)
        return {
          status: 200,
          headers: {},
          body: (async function* () {
            yield utf8('begun')
            await aborted(signal)
          })(),
        }
      },
    })
    const changes = record(server)
    await until(() => changes.length === 1)
    const response = await server.link.requests.send(worker.record, post('{}'))
    const text = textOf(response)
    for (const socket of server.listening.sockets) socket.destroy()
    expect(await rejection(text)).toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
    await aborted(signals[0] as AbortSignal)
    await until(() => changes.length === 3)
    expect(changes).toEqual(['snapshot w:1', 'removed w:1 leaseLost', 'put w:1 active'])
    worker.destroy()
  })

  test('a worker that says nothing for the liveness limit is lost, with its requests', async () => {
    const clock = new VirtualClock()
    await using server = await startServer({
      clock,
      limits: { pingIntervalMs: 1_000, livenessTimeoutMs: 3_000 },
    })
    const worker = await startWorker({
      join: server.url,
      handler: async (_request, { signal }) => {
        await aborted(signal)
        throw new Error('aborted')
      },
    })
    const failure = rejection(server.link.requests.send(worker.record, post('{}')))
    const changes = record(server)
    await until(() => changes.length === 1)
    // The worker's process stands still: its socket is open and nothing is read from it.
    for (const socket of server.listening.sockets) socket.pause()
    clock.advance(2_999)
    expect(await present(server)).toEqual(['w:1 active'])
    clock.advance(1)
    expect(await failure).toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
      message: expect.stringContaining('nothing heard for 3000 ms'),
    })
    await until(() => changes.includes('removed w:1 leaseLost'))
    worker.destroy()
  })

  test('a worker whose peer answers pings stays, however long nothing else happens', async () => {
    const clock = new VirtualClock()
    await using server = await startServer({
      clock,
      limits: { pingIntervalMs: 1_000, livenessTimeoutMs: 3_000 },
    })
    const worker = await startWorker({ join: server.url, load: () => load })
    const load = { runningRequests: 1, waitingRequests: 2, kvUsageRatio: 0.5 }
    let pings = 0
    for (const socket of server.listening.sockets) socket.on('data', () => (pings += 1))
    for (let seconds = 1; seconds <= 10; seconds++) {
      const before = pings
      clock.advance(1_000)
      await until(() => pings > before)
    }
    expect(await present(server)).toEqual(['w:1 active'])
    worker.destroy()
  })

  test('a worker gives up on a server that says nothing, and joins again', async () => {
    const clock = new VirtualClock()
    await using server = await startServer()
    const worker = await startWorker({
      join: server.url,
      clock,
      limits: { pingIntervalMs: 1_000, livenessTimeoutMs: 3_000 },
    })
    const states: LinkWorkerEvent[] = []
    worker.on('state', (event) => states.push(event))
    for (const socket of server.listening.sockets) socket.pause()
    clock.advance(3_000)
    await until(() => states.length > 0)
    expect(states[0]).toMatchObject({
      type: 'disconnected',
      reason: 'nothing heard for 3000 ms',
      atMs: 3_000,
    })
    await until(() => clock.pendingTimers > 0)
    clock.advance(20)
    await until(() => states.some((event) => event.type === 'welcomed'))
    worker.destroy()
  })

  test('the newest load report is there for the asking', async () => {
    const clock = new VirtualClock()
    await using server = await startServer()
    let runningRequests = 1
    const worker = await startWorker({
      join: server.url,
      clock,
      load: () => ({ runningRequests, waitingRequests: 0, kvUsageRatio: 0.25 }),
      loadIntervalMs: 500,
    })
    await until(() => server.link.load('w:1')?.runningRequests === 1)
    runningRequests = 2
    clock.advance(500)
    await until(() => server.link.load('w:1')?.runningRequests === 2)
    expect(server.link.load('w:1')).toEqual({ runningRequests: 2, waitingRequests: 0, kvUsageRatio: 0.25 })
    expect(server.link.load('nobody:1')).toBeUndefined()
    worker.destroy()
    await until(() => server.link.load('w:1') === undefined)
  })
})

describe('leaving', () => {
  test('drain marks the worker draining, lets running requests end, and close takes it away', async () => {
    const gate = deferred()
    await using server = await startServer()
    const worker = await startWorker({
      join: server.url,
      handler: async () => {
        await gate.promise
        return answer('finished')
      },
    })
    const changes = record(server)
    await until(() => changes.length === 1)
    const running = ask(server, worker.record)
    await until(() => worker.runningRequests === 1)
    let hasDrained = false
    const drained = worker.drain().then(() => {
      hasDrained = true
    })
    await until(() => changes.includes('put w:1 draining'))
    expect(hasDrained).toBe(false)
    // It was asked before the server's own users heard of the drain: it is still answered.
    const late = ask(server, worker.record)
    await until(() => worker.runningRequests === 2)
    gate.resolve()
    expect(await Promise.all([running, late])).toEqual(['finished', 'finished'])
    await drained
    await Promise.all([worker.close(), worker.close()])
    await until(() => changes.length === 3)
    expect(changes.at(-1)).toBe('removed w:1 deregistered')
  })

  test('a drain waits no longer than its limit', async () => {
    const clock = new VirtualClock()
    await using server = await startServer()
    const worker = await startWorker({
      join: server.url,
      clock,
      drainTimeoutMs: 1_000,
      handler: async (_request, { signal }) => {
        await aborted(signal)
        throw new Error('aborted')
      },
    })
    const failure = rejection(ask(server, worker.record))
    await until(() => worker.runningRequests === 1)
    const closing = worker.close()
    clock.advance(1_000)
    await closing
    expect(await failure).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
  })

  test('a draining worker that reconnects says that it is draining', async () => {
    await using server = await startServer()
    const gate = deferred()
    const worker = await startWorker({
      join: server.url,
      handler: async () => {
        await gate.promise
        return answer('ok')
      },
    })
    void server.link.requests.send(worker.record, post('{}')).catch(() => {})
    await until(() => worker.runningRequests === 1)
    const changes = record(server)
    const drained = worker.drain()
    await until(() => changes.includes('put w:1 draining'))
    for (const socket of server.listening.sockets) socket.destroy()
    await until(() => changes.length === 4)
    expect(changes.slice(2)).toEqual(['removed w:1 leaseLost', 'put w:1 draining'])
    gate.resolve()
    await drained
    await worker.close()
  })

  test('a server that closes lets running requests end first, and takes no new one', async () => {
    const gate = deferred()
    const server = await startServer()
    const worker = await startWorker({
      join: server.url,
      handler: async () => {
        await gate.promise
        return { status: 200, headers: {}, body: chunks('fin', 'ished') }
      },
    })
    const running = ask(server, worker.record)
    await until(() => worker.runningRequests === 1)
    const closing = server.link.close()
    expect(await rejection(ask(server, worker.record))).toMatchObject({ code: 'INFERA_FLEET_CLOSED' })
    gate.resolve()
    expect(await running).toBe('finished')
    await closing
    await server.link.close()
    expect(await present(server)).toEqual([])
    worker.destroy()
    await server[Symbol.asyncDispose]()
  })

  test('a server that closes waits no longer than its limit', async () => {
    const clock = new VirtualClock()
    await using server = await startServer({ clock, closeTimeoutMs: 1_000 })
    const worker = await startWorker({
      join: server.url,
      handler: async (_request, { signal }) => {
        await aborted(signal)
        throw new Error('aborted')
      },
    })
    const failure = rejection(ask(server, worker.record))
    await until(() => worker.runningRequests === 1)
    const closing = server.link.close()
    clock.advance(1_000)
    expect(await failure).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
    await closing
    worker.destroy()
  })

  test('closed before it joined, a worker says so', async () => {
    const worker = newWorker({ join: 'ws://127.0.0.1:1' })
    worker.start()
    await worker.close()
    expect(await rejection(worker.joined)).toMatchObject({ code: 'INFERA_FLEET_CLOSED' })
    expect(worker.state).toBe('closed')
  })
})

describe('requests', () => {
  test('a handler that fails is an error of the worker, before the status and after it', async () => {
    await using server = await startServer()
    const worker = await startWorker({
      join: server.url,
      handler: async ({ path }) => {
        if (path === '/before') throw new Error('no memory left')
        return {
          status: 200,
          headers: {},
          body: (async function* () {
            yield utf8('begun')
            throw new Error('no memory left')
          })(),
        }
      },
    })
    const { requests } = server.link
    const failed = { code: 'INFERA_FLEET_WORKER_FAILED', message: expect.stringContaining('no memory left') }
    expect(await rejection(requests.send(worker.record, post('{}', '/before')))).toMatchObject(failed)
    expect(await rejection(textOf(await requests.send(worker.record, post('{}', '/after'))))).toMatchObject(
      failed,
    )
    worker.destroy()
  })

  test('what cannot be said in a frame fails its own request, or is left out, and costs no connection', async () => {
    const clock = new VirtualClock()
    const warnings: string[] = []
    const logger: Logger = { ...silentLogger, warn: (_fields, message) => warnings.push(message) }
    await using server = await startServer()
    const worker = await startWorker({
      join: server.url,
      clock,
      logger,
      load: () => ({ runningRequests: -1, waitingRequests: 0, kvUsageRatio: Number.NaN }),
      kvEvents: {
        ranks: [0],
        snapshot: () => ({ sequence: Number.NaN, payloads: [] }),
        subscribe: () => () => {},
      },
      handler: async ({ path }) => answer('ok', path === '/odd' ? 99 : 200),
    })
    const { requests, kvEvents } = server.link
    expect(await rejection(requests.send(worker.record, post('{}', 'no-slash')))).toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
      message: expect.stringContaining('path'),
    })
    expect(await rejection(requests.send(worker.record, post('{}', '/odd')))).toMatchObject({
      code: 'INFERA_FLEET_WORKER_FAILED',
    })
    const events = kvEvents.subscribe(worker.record)[Symbol.asyncIterator]()
    expect(await rejection(events.next())).toMatchObject({
      message: expect.stringContaining('sequence number NaN'),
    })
    expect(await ask(server, worker.record)).toBe('ok')
    expect(warnings).toContain('load report failed')
    expect(server.link.load('w:1')).toBeUndefined()
    worker.destroy()
  })

  test('a head that is too large fails its own request and no other', async () => {
    await using server = await startServer()
    const worker = await startWorker({
      join: server.url,
      handler: async ({ path }) => ({
        status: 200,
        headers: path === '/large' ? { 'x-large': 'x'.repeat(70_000) } : {},
        body: chunks('ok'),
      }),
    })
    const { requests } = server.link
    const large = { ...post('{}'), headers: { 'x-large': 'x'.repeat(70_000) } }
    const slow = requests.send(worker.record, post('{}'))
    expect(await rejection(requests.send(worker.record, large))).toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
    })
    expect(await rejection(requests.send(worker.record, post('{}', '/large')))).toMatchObject({
      code: 'INFERA_FLEET_WORKER_FAILED',
    })
    expect(await textOf(await slow)).toBe('ok')
    worker.destroy()
  })

  test('requests beyond streamsMax are turned away at once, and there is room again when others ended', async () => {
    const gate = deferred()
    await using server = await startServer({ limits: { streamsMax: 2 } })
    const worker = await startWorker({
      join: server.url,
      handler: async () => {
        await gate.promise
        return answer('ok')
      },
    })
    const running = [ask(server, worker.record), ask(server, worker.record)]
    expect(await rejection(ask(server, worker.record))).toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
      message: expect.stringContaining('limits.streamsMax'),
    })
    gate.resolve()
    await Promise.all(running)
    expect(await ask(server, worker.record)).toBe('ok')
    worker.destroy()
  })
})

async function ask(server: RunningServer, worker: Parameters<RunningServer['link']['requests']['send']>[0]) {
  return textOf(await server.link.requests.send(worker, post('{}')))
}

/** The workers present now, with their states, in order of id. */
async function present(server: RunningServer): Promise<string[]> {
  for await (const change of server.discovery.watch()) {
    if (change.type === 'snapshot') return change.entries.map(label).sort()
  }
  return []
}

async function until3(server: RunningServer): Promise<void> {
  const seen = new Set<string>()
  for await (const change of server.discovery.watch()) {
    if (change.type === 'snapshot') for (const entry of change.entries) seen.add(label(entry))
    if (change.type === 'entryPut') seen.add(label(change.entry))
    if (seen.size === 3) return
  }
}

/** What happens in the registry from now on, as short texts. It ends with the discovery. */
function record(server: RunningServer): string[] {
  const changes: string[] = []
  void (async () => {
    for await (const change of server.discovery.watch()) changes.push(describeChange(change))
  })()
  return changes
}

function describeChange(change: FleetChange): string {
  if (change.type === 'snapshot')
    return `snapshot ${change.entries.map((entry) => label(entry).split(' ')[0])}`
  return change.type === 'entryPut' ? `put ${label(change.entry)}` : `removed ${change.id} ${change.reason}`
}

function label(entry: Extract<FleetChange, { type: 'entryPut' }>['entry']): string {
  return entry.kind === 'worker' ? `${entry.record.worker_id} ${entry.record.status}` : entry.record.server_id
}
