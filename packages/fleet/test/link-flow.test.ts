import { setMaxListeners } from 'node:events'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { KvEventBatch, KvEventMessage, KvEventSource } from '../src/index.js'
import { frameCostBytes, LinkLimits, pieceBytesMax } from '../src/link/limits.js'
import { answer, bytesOf, post, textOf, utf8 } from './support/bodies.js'
import { RowMirror, RowSource } from './support/kv-source.js'
import { type HeardFrame, MemoryPair } from './support/memory-pair.js'
import { aborted, deferred, rejection } from './support/wait.js'

const MiB = 1024 * 1024
const defaults = LinkLimits.parse({})
/** What can be ahead of a frame that goes out at once: the mark, and the piece that crossed it. */
const aheadBytesMax = defaults.highWaterBytes + pieceBytesMax + 64

describe('responses', () => {
  test('200 readers that do not read hold what is stated at either end, and another stream goes on', async () => {
    const chunkBytes = 1_000
    const serverLimits = {
      streamWindowBytes: 64 * 1024,
      streamWindowMinBytes: 4 * 1024,
      connectionWindowBytes: MiB,
    }
    const produced = new Map<string, number>()
    const pair = new MemoryPair({
      serverLimits,
      handler: async ({ path }, { signal }) => ({
        status: 200,
        headers: {},
        body: (async function* () {
          while (!signal.aborted) {
            produced.set(path, (produced.get(path) ?? 0) + chunkBytes)
            yield new Uint8Array(chunkBytes)
          }
        })(),
      }),
    })
    const stop = new AbortController()
    setMaxListeners(0, stop.signal)
    const slow = Array.from({ length: 200 }, (_, index) => `/slow/${index}`)
    await pair.whenDone(Promise.all(slow.map((path) => pair.ask(post('', path), stop.signal))))
    await pair.settle()
    const producedBytes = () => slow.reduce((sum, path) => sum + (produced.get(path) ?? 0), 0)
    const arrivedBytes = () => sum(pair.heard.filter(({ at, type }) => at === 'server' && type === 'data'))
    const boundBytes = serverLimits.connectionWindowBytes + 200 * serverLimits.streamWindowMinBytes
    expect(pair.server.usage.responseBytes).toBeLessThanOrEqual(boundBytes)
    expect(arrivedBytes()).toBeLessThanOrEqual(boundBytes)
    // The bound is reached, not only kept: nobody stopped for another reason.
    expect(pair.server.usage.responseBytes).toBeGreaterThan(boundBytes * 0.95)
    // At the worker one chunk of each is in hand, and nothing waits.
    expect(producedBytes() - arrivedBytes()).toBeLessThanOrEqual(200 * chunkBytes)

    const stoodStill = producedBytes()
    const fast = await pair.whenDone(pair.ask(post('', '/fast'), stop.signal))
    const body = fast.body[Symbol.asyncIterator]()
    for (let count = 0; count < 1_000; count++) {
      expect((await pair.whenDone(body.next())).value?.byteLength).toBeGreaterThan(0)
    }
    expect(producedBytes()).toBe(stoodStill)
    expect(pair.server.usage.responseBytes).toBeLessThanOrEqual(
      boundBytes + serverLimits.streamWindowMinBytes,
    )
    stop.abort()
    await pair.settle()
    expect(pair.runningRequests).toBe(0)
    expect(pair.server.usage.responseBytes).toBe(0)
  })

  test('a slow reader slows its own handler: it is asked for no more than a window ahead of what was read', async () => {
    const windowBytes = 32 * 1024
    let producedBytes = 0
    const pair = new MemoryPair({
      serverLimits: { streamWindowBytes: windowBytes },
      handler: async () => ({
        status: 200,
        headers: {},
        body: (async function* () {
          for (let count = 0; count < 1_000; count++) {
            producedBytes += 500
            yield new Uint8Array(500)
          }
        })(),
      }),
    })
    const response = await pair.whenDone(pair.ask(post('')))
    const body = response.body[Symbol.asyncIterator]()
    let readBytes = 0
    for (;;) {
      await pair.clock.advanceAsync(100)
      expect(producedBytes - readBytes).toBeLessThanOrEqual(windowBytes + 500)
      const step = await pair.whenDone(body.next())
      if (step.done) break
      readBytes += step.value.byteLength
    }
    expect(readBytes).toBe(500_000)
  })

  test('a handler is not asked while its stream has no credit', async () => {
    let pulled = 0
    const pair = new MemoryPair({
      serverLimits: { streamWindowBytes: 10_000, streamWindowMinBytes: 10_000 },
      handler: async () => ({
        status: 200,
        headers: {},
        body: (async function* () {
          for (;;) {
            pulled += 1
            yield new Uint8Array(1_000 - frameCostBytes)
          }
        })(),
      }),
    })
    const cancelled = new AbortController()
    const { body } = await pair.whenDone(pair.ask(post(''), cancelled.signal))
    await pair.settle()
    expect(pulled).toBe(10)
    const reader = body[Symbol.asyncIterator]()
    for (let count = 0; count < 5; count++) await pair.whenDone(reader.next())
    await pair.settle()
    expect(pulled).toBe(15)
    cancelled.abort()
  })

  test('a chunk of any size arrives whole through the smallest windows', async () => {
    const sent = Buffer.alloc(200_000, 'abcdefghij')
    const pair = new MemoryPair({
      serverLimits: { streamWindowBytes: 1_024, streamWindowMinBytes: 1_024 },
      handler: async () => ({
        status: 200,
        headers: {},
        body: (async function* () {
          yield sent
          yield new Uint8Array()
          yield utf8('end')
        })(),
      }),
    })
    const response = await pair.whenDone(pair.ask(post('')))
    const arrived = await pair.whenDone(bytesOf(response))
    expect(arrived.equals(Buffer.concat([sent, utf8('end')]))).toBe(true)
  })

  test('a chunk is one frame as long as its stream has credit', async () => {
    const pair = new MemoryPair({
      handler: async () => ({
        status: 200,
        headers: {},
        body: (async function* () {
          for (let count = 0; count < 5_000; count++) yield utf8('data: token\n\n')
        })(),
      }),
    })
    const response = await pair.whenDone(pair.ask(post('')))
    expect((await pair.whenDone(bytesOf(response))).byteLength).toBe(65_000)
    const frames = pair.heard.filter(({ type }) => type === 'data')
    const credits = pair.heard.filter(({ at, type }) => at === 'worker' && type === 'credit')
    // Each grant may end in the middle of a chunk; they come in halves of a window.
    expect(frames.length).toBeLessThanOrEqual(5_000 + credits.length)
    const costBytes = 65_000 + frames.length * frameCostBytes
    expect(credits.length).toBeLessThanOrEqual(Math.ceil(costBytes / (defaults.streamWindowBytes / 2)))
  })
})

describe('request bodies', () => {
  test('one beyond the worker’s limit is refused at once, with what to raise, and nothing is sent', async () => {
    const pair = new MemoryPair({ workerLimits: { requestBodyBytesMax: 1_000 } })
    expect(await rejection(pair.ask(post(new Uint8Array(1_001))))).toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
      message: expect.stringContaining('limits.requestBodyBytesMax'),
    })
    await pair.settle()
    expect(pair.heard).toEqual([])
    expect(await pair.whenDone(pair.ask(post(new Uint8Array(1_000))).then(textOf))).toBe('ok')
  })

  test('one whose head cannot be said gives back the room that was reserved for it', async () => {
    const pair = new MemoryPair()
    const { path: _path, ...request } = post(new Uint8Array(1_000))
    const headers = { 'x-large': 'x'.repeat(70_000) }
    for (const bad of [
      { ...request, path: 'nowhere' },
      { ...request, path: '/', headers },
    ]) {
      expect(await rejection(pair.ask(bad))).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
      expect(pair.server.usage).toEqual({ responseBytes: 0, kvBytes: 0, bodyBytes: 0 })
    }
    await pair.settle()
    expect(pair.heard).toEqual([])
  })

  test('they wait in line for room at the worker, first come first served, and may leave it', async () => {
    const gate = deferred()
    const order: string[] = []
    const pair = new MemoryPair({
      workerLimits: { requestBodiesBytesMax: 1_000_000 },
      bytesPerMs: 1_000,
      handler: async ({ path }) => {
        order.push(path)
        await gate.promise
        return answer('ok')
      },
    })
    const size = 600_000
    const leaving = new AbortController()
    const running = ['/a', '/b', '/c'].map((path) =>
      pair.ask(post(new Uint8Array(size), path), path === '/b' ? leaving.signal : undefined).then(textOf),
    )
    const left = rejection(running[1] as Promise<string>)
    expect(pair.server.usage.bodyBytes).toBe(size)
    const reason = new Error('client left')
    leaving.abort(reason)
    expect(await left).toBe(reason)
    // Handed to the handler, a body is not on its way any more: the next one comes while that runs.
    await pair.until(() => order.length === 2)
    expect(order).toEqual(['/a', '/c'])
    expect(pair.heard.filter(({ type }) => type === 'request')).toHaveLength(2)
    expect(pair.heard.filter(({ type }) => type === 'cancel')).toHaveLength(0)
    gate.resolve()
    await pair.whenDone(Promise.all([running[0], running[2]]))
    expect(pair.server.usage.bodyBytes).toBe(0)
  })

  test('bodies that together exceed the room of the worker many times all arrive, and never more than fits', async () => {
    let mostBytes = 0
    const pair = new MemoryPair({
      workerLimits: { requestBodiesBytesMax: 300_000, requestBodyBytesMax: 300_000 },
      handler: async ({ body }) => answer(String(body.byteLength)),
    })
    const sizes = Array.from({ length: 60 }, (_, index) => (index * 37_123) % 300_001)
    const running = sizes.map((size) => pair.ask(post(new Uint8Array(size))).then(textOf))
    const done = Promise.all(running)
    await pair.until(() => {
      mostBytes = Math.max(mostBytes, pair.server.usage.bodyBytes)
      return pair.heard.filter(({ type, at }) => type === 'end' && at === 'server').length === sizes.length
    })
    expect(await done).toEqual(sizes.map(String))
    expect(mostBytes).toBeLessThanOrEqual(300_000)
    expect(mostBytes).toBeGreaterThan(200_000)
  })

  test('a worker that drains is sent none of those that still wait, and counts those that are on their way', async () => {
    const pair = new MemoryPair({ workerLimits: { requestBodiesBytesMax: 1_000_000 }, bytesPerMs: 100 })
    const first = pair.ask(post(new Uint8Array(900_000))).then(textOf)
    const second = rejection(pair.ask(post(new Uint8Array(900_000))))
    await pair.until(() => pair.heard.length > 2)
    expect(pair.runningRequests).toBe(1)
    pair.workerSocket.send({ type: 'drain' })
    expect(await pair.whenDone(second)).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
    expect(await pair.whenDone(first)).toBe('ok')
    expect(pair.heard.filter(({ type }) => type === 'request')).toHaveLength(1)
  })

  test('requests in line count as streams', async () => {
    const limits = { streamsMax: 3 }
    const pair = new MemoryPair({ serverLimits: limits, workerLimits: { requestBodiesBytesMax: 1_000 } })
    const running = [1, 2, 3].map(() => pair.ask(post(new Uint8Array(1_000))).then(textOf))
    expect(await rejection(pair.ask(post('')))).toMatchObject({
      message: expect.stringContaining('limits.streamsMax'),
    })
    await pair.whenDone(Promise.all(running))
  })

  test('two large ones take turns, and a small one that comes later is there first', async () => {
    const order: number[] = []
    const pair = new MemoryPair({
      bytesPerMs: 10_000,
      handler: async ({ body }) => {
        order.push(body.byteLength)
        return answer('ok')
      },
    })
    const large = [8 * MiB, 8 * MiB + 1].map((size) => pair.ask(post(new Uint8Array(size))).then(textOf))
    await pair.until(() => pair.heard.length > 20)
    const small = pair.ask(post(new Uint8Array(100_000))).then(textOf)
    await pair.whenDone(Promise.all([...large, small]))
    expect(order).toEqual([100_000, 8 * MiB, 8 * MiB + 1])
    const pieces = pair.heard.filter(({ type }) => type === 'data')
    expect(Math.max(...pieces.map(({ sizeBytes }) => sizeBytes))).toBe(pieceBytesMax)
    const both = pieces.slice(0, pieces.map(({ streamId }) => streamId).lastIndexOf(1))
    // Until the second began the first was alone.
    const begun = both.findIndex(({ streamId }) => streamId === 2)
    expect(begun * pieceBytesMax).toBeLessThanOrEqual(aheadBytesMax)
    for (const [index, piece] of both.entries()) {
      if (index > begun) expect(piece.streamId).not.toBe(both[index - 1]?.streamId)
    }
  })
})

describe('what must not wait', () => {
  test('a cancel overtakes a body of 64 MiB', async () => {
    const pair = new MemoryPair({ bytesPerMs: 10_000 })
    const cancelled = new AbortController()
    const failure = rejection(pair.ask(post(new Uint8Array(64 * MiB)), cancelled.signal))
    const other = pair.ask(post(new Uint8Array(64 * MiB))).then(textOf)
    await pair.until(() => pair.heard.length > 100)
    cancelled.abort(new Error('client left'))
    const before = pair.heard.length
    await failure
    await pair.until(() => pair.heard.some(({ type }) => type === 'cancel'))
    expect(sum(pair.heard.slice(before))).toBeLessThanOrEqual(aheadBytesMax)
    await pair.whenDone(other)
    expect(pair.server.usage.bodyBytes).toBe(0)
    const after = pair.heard.slice(pair.heard.findIndex(({ type }) => type === 'cancel'))
    expect(after.filter(({ streamId, type }) => streamId === 1 && type === 'data')).toEqual([])
  })

  test('a cancel ends a snapshot under way, which is left at once', async () => {
    const source = new LazySource(64 * MiB)
    const pair = new MemoryPair({ kvEvents: source, bytesPerMs: 10_000 })
    const events = pair.subscribe()
    void events.next()
    await pair.until(() => pair.heard.length > 100)
    await events.return()
    const before = pair.heard.length
    await pair.settle()
    expect(sum(pair.heard.slice(before))).toBeLessThanOrEqual(aheadBytesMax)
    expect(source.isLeft).toBe(true)
    expect(pair.server.usage.kvBytes).toBe(0)
  })

  test('a ping overtakes bodies, so a busy line is not taken for a dead one', async () => {
    const pair = new MemoryPair({ bytesPerMs: 2_000 })
    // Half a minute of it, which is longer than the limit of silence.
    const done = pair.ask(post(new Uint8Array(64 * MiB))).then(textOf)
    expect(await pair.whenDone(done)).toBe('ok')
    expect(pair.clock.now()).toBeGreaterThan(30_000)
    expect(pair.closed).toEqual([])
  })

  test('a snapshot of 100 MiB holds a chunk of a response back by six pieces at most', async () => {
    const source = new LazySource(100 * MiB)
    let produce = deferred()
    const pair = new MemoryPair({
      kvEvents: source,
      bytesPerMs: 20_000,
      handler: async () => ({
        status: 200,
        headers: {},
        body: (async function* () {
          for (;;) {
            await produce.promise
            produce = deferred()
            yield utf8('token')
          }
        })(),
      }),
    })
    const events = pair.subscribe()
    const snapshot = events.next()
    let isWhole = false
    void snapshot.then(() => {
      isWhole = true
    })
    const body = (await pair.whenDone(pair.ask(post('')))).body[Symbol.asyncIterator]()
    let count = 0
    while (!isWhole) {
      const before = pair.heard.length
      produce.resolve()
      await pair.whenDone(body.next())
      const pieces = pair.heard.slice(before).filter(({ type }) => type === 'kvSnapshot')
      expect(pieces.length).toBeLessThanOrEqual(6)
      // No more of it is made than is under way.
      const arrivedBytes = sum(pair.heard.filter(({ type }) => type === 'kvSnapshot'))
      expect(source.madeBytes - arrivedBytes).toBeLessThanOrEqual(
        aheadBytesMax + LazySource.payloadBytes + 2 * pieceBytesMax,
      )
      count += 1
    }
    expect(count).toBeGreaterThan(100)
    const { value } = await snapshot
    expect(value?.type === 'snapshot' && value.payloads).toHaveLength((100 * MiB) / LazySource.payloadBytes)
  })

  test('a crowd of busy responses does not starve events', async () => {
    const source = new LazySource(4 * MiB)
    const pair = new MemoryPair({
      kvEvents: source,
      bytesPerMs: 10_000,
      handler: async (_request, { signal }) => ({
        status: 200,
        headers: {},
        body: (async function* () {
          while (!signal.aborted) yield new Uint8Array(pieceBytesMax)
        })(),
      }),
    })
    const stop = new AbortController()
    setMaxListeners(0, stop.signal)
    const readers = Array.from({ length: 20 }, async () => {
      const response = await pair.ask(post(''), stop.signal)
      for await (const _chunk of response.body);
    })
    const ended = Promise.allSettled(readers)
    await pair.until(() => pair.heard.length > 100)
    const events = pair.subscribe()
    expect((await pair.whenDone(events.next())).value).toMatchObject({ type: 'snapshot' })
    const kinds = pair.heard.filter(
      ({ type, at }) => at === 'server' && (type === 'data' || type === 'kvSnapshot'),
    )
    const first = kinds.findIndex(({ type }) => type === 'kvSnapshot')
    const last = kinds.map(({ type }) => type).lastIndexOf('kvSnapshot')
    const between = kinds.slice(first, last)
    expect(between.filter(({ type }) => type === 'data').length).toBeLessThanOrEqual(
      3 * between.filter(({ type }) => type === 'kvSnapshot').length,
    )
    stop.abort()
    await pair.whenDone(ended)
  })
})

describe('events', () => {
  test('a follower that does not read holds one window at the server, and is told the rest by a fresh snapshot', async () => {
    const source = new RowSource([0], 1_000)
    const kvWindowBytes = 32 * 1024
    const pair = new MemoryPair({
      kvEvents: source,
      serverLimits: { kvWindowBytes },
      workerLimits: { kvBufferBytesMax: 64 * 1024 },
    })
    const mirror = new RowMirror()
    const events = pair.subscribe()
    const read = async () => mirror.apply((await pair.whenDone(events.next())).value as KvEventMessage)
    await read()
    for (let count = 0; count < 200; count++) {
      source.publish()
      await pair.clock.advanceAsync(10)
      expect(pair.server.usage.kvBytes).toBeLessThanOrEqual(kvWindowBytes)
    }
    expect(sum(pair.heard.filter(({ type }) => type === 'kvBatch'))).toBeLessThanOrEqual(kvWindowBytes)
    expect(source.snapshotsTaken).toBe(1)
    while ((mirror.rows.get(0)?.length ?? 0) < 200) await read()
    expect(mirror.rows.get(0)).toEqual(source.row())
    expect(mirror.snapshots).toBe(2)
    source.publish()
    await read()
    expect(mirror.rows.get(0)).toEqual(source.row())
    await events.return()
    await pair.settle()
    expect(pair.server.usage.kvBytes).toBe(0)
    expect(source.listenerCount).toBe(0)
  })

  test('a batch that no window holds comes as a snapshot', async () => {
    const source = new RowSource([0], 20_000)
    const pair = new MemoryPair({ kvEvents: source, serverLimits: { kvWindowBytes: 32 * 1024 } })
    const mirror = new RowMirror()
    const events = pair.subscribe()
    for (let count = 0; count <= 5; count++) {
      mirror.apply((await pair.whenDone(events.next())).value as KvEventMessage)
      source.publish()
    }
    expect(mirror.snapshots).toBe(6)
    await events.return()
  })

  test('a snapshot that fails on the way ends its stream with that, and no other', async () => {
    const pair = new MemoryPair({
      kvEvents: {
        ranks: [0],
        snapshot: () => ({
          sequence: 0,
          payloads: (function* () {
            yield new Uint8Array(200_000)
            throw new Error('cache is gone')
          })(),
        }),
        subscribe: () => () => {},
      },
    })
    const events = pair.subscribe()
    expect(await pair.whenDone(rejection(events.next()))).toMatchObject({
      code: 'INFERA_FLEET_WORKER_FAILED',
      message: expect.stringContaining('cache is gone'),
    })
    expect(await pair.whenDone(pair.ask(post('')).then(textOf))).toBe('ok')
    expect(pair.server.usage.kvBytes).toBe(0)
  })
})

describe('credit', () => {
  test('comes home whole, however streams end and in whatever order', async () => {
    const step = fc.record({
      at: fc.nat(7),
      action: fc.constantFrom(
        ...['ask', 'ask', 'ask', 'read', 'read', 'yield', 'yield', 'yield', 'end', 'fail', 'cancel', 'leave'],
        ...['wait', 'wait', 'wait', 'wait'],
      ),
      bytes: fc.integer({ min: 1, max: 6_000 }),
    })
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 40, maxLength: 160 }),
        fc.boolean(),
        async (steps, isCut) => {
          const serverLimits = {
            streamWindowBytes: 4_096,
            streamWindowMinBytes: 1_024,
            connectionWindowBytes: 6_000,
            streamsMax: 6,
          }
          const run: RandomRun = new RandomRun(
            new MemoryPair({
              serverLimits,
              // Fewer than the server's: it finds cancelled ones still at work there, and is refused.
              workerLimits: { requestBodyBytesMax: 6_000, requestBodiesBytesMax: 10_000, streamsMax: 4 },
              bytesPerMs: 1_000,
              handler: (request, { signal }) => run.handle(request.path, signal),
            }),
          )
          const { pair } = run
          for (const { at, action, bytes } of steps) {
            await run.step(at, action, bytes)
            const { responseBytes, bodyBytes } = pair.server.usage
            expect(bodyBytes).toBeLessThanOrEqual(10_000)
            expect(responseBytes).toBeLessThanOrEqual(6_000 + run.asked * 1_024)
          }
          if (isCut) pair.link.cut()
          else run.endHandlers()
          await pair.whenDone(run.readAll())
          await pair.settle()
          expect(pair.closed.map(({ reason }) => reason)).toEqual(isCut ? ['connection reset'] : [])
          expect(pair.server.usage.responseBytes).toBe(0)
          expect(pair.runningRequests).toBe(0)
          await pair.whenDone(pair.server.whenIdle())
          if (isCut) return
          expect(pair.server.usage).toEqual({ responseBytes: 0, kvBytes: 0, bodyBytes: 0 })
          // Nothing was lost on the way: there is room for the largest again.
          const echo = pair.ask(post(new Uint8Array(6_000), '/echo')).then(bytesOf)
          expect((await pair.whenDone(echo)).byteLength).toBe(6_000)
        },
      ),
      { numRuns: 60 },
    )
  })
})

/** Streams driven by chance, at both ends. */
class RandomRun {
  readonly pair: MemoryPair
  readonly #readers = new Map<number, AsyncIterator<Uint8Array>>()
  readonly #cancels = new Map<number, AbortController>()
  readonly #handlers = new Map<string, (next: Uint8Array | 'end' | 'fail') => void>()
  readonly #reading = new Set<number>()
  readonly #ended: Promise<unknown>[] = []
  asked = 0

  constructor(pair: MemoryPair) {
    this.pair = pair
  }

  async handle(path: string, signal: AbortSignal) {
    if (path === '/echo') return { status: 200, headers: {}, body: one(new Uint8Array(6_000)) }
    const waiting: (Uint8Array | 'end' | 'fail')[] = []
    let wake = () => {}
    this.#handlers.set(path, (next) => {
      waiting.push(next)
      wake()
    })
    void aborted(signal).then(() => wake())
    const body = (async function* () {
      while (!signal.aborted) {
        const next = waiting.shift()
        if (next === 'end') return
        if (next === 'fail') throw new Error('engine died')
        if (next) yield next
        else
          await new Promise<void>((resolve) => {
            wake = resolve
          })
      }
    })()
    return { status: 200, headers: {}, body }
  }

  async step(at: number, action: string, bytes: number): Promise<void> {
    const path = `/${at}`
    if (action === 'ask') this.#ask(at, bytes)
    else if (action === 'yield') this.#handlers.get(path)?.(new Uint8Array(bytes))
    else if (action === 'end' || action === 'fail') this.#handlers.get(path)?.(action)
    else if (action === 'cancel') this.#cancels.get(at)?.abort(new Error('left'))
    else if (action === 'wait') await this.pair.clock.advanceAsync(bytes % 10)
    else if (action === 'read') this.#keep(this.#read(at))
    else if (action === 'leave') this.#keep(this.#readers.get(at)?.return?.())
    if (action === 'leave') this.#readers.delete(at)
  }

  endHandlers(): void {
    for (const end of this.#handlers.values()) end('end')
    // Those that were in line begin only now.
    const { handle } = this
    this.handle = async (path, signal) => {
      const response = await handle.call(this, path, signal)
      this.#handlers.get(path)?.('end')
      return response
    }
  }

  async readAll(): Promise<void> {
    // Answers that come now are read as well.
    for (let count = 0; count < this.#ended.length; count++) await this.#ended[count]
    for (const reader of this.#readers.values()) while (!(await done(reader)));
  }

  #ask(at: number, bytes: number): void {
    if (this.#cancels.has(at)) return
    this.asked += 1
    const cancel = new AbortController()
    this.#cancels.set(at, cancel)
    this.#keep(
      this.pair.ask(post(new Uint8Array(bytes), `/${at}`), cancel.signal).then(({ body }) => {
        this.#readers.set(at, body[Symbol.asyncIterator]())
      }),
    )
  }

  /** One read at a time, as readers do. */
  async #read(at: number): Promise<void> {
    if (this.#reading.has(at)) return
    this.#reading.add(at)
    await this.#readers
      .get(at)
      ?.next()
      .catch(() => {})
    this.#reading.delete(at)
  }

  #keep(promise: Promise<unknown> | undefined): void {
    if (promise) this.#ended.push(promise.catch(() => {}))
  }
}

async function done(reader: AsyncIterator<Uint8Array>): Promise<boolean> {
  try {
    return (await reader.next()).done === true
  } catch {
    return true // however it ended
  }
}

async function* one(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

/** A cache whose snapshot is made on the way. It publishes nothing. */
class LazySource implements KvEventSource {
  static readonly payloadBytes = 512 * 1024
  readonly ranks = [0]
  readonly #sizeBytes: number
  madeBytes = 0
  isLeft = false

  constructor(sizeBytes: number) {
    this.#sizeBytes = sizeBytes
  }

  snapshot() {
    return { sequence: -1, payloads: this.#payloads() }
  }

  subscribe(_listener: (batch: KvEventBatch) => void): () => void {
    return () => {}
  }

  *#payloads(): Generator<Uint8Array> {
    const payload = new Uint8Array(LazySource.payloadBytes)
    try {
      while (this.madeBytes < this.#sizeBytes) {
        this.madeBytes += payload.byteLength
        yield payload
      }
    } finally {
      this.isLeft = true
    }
  }
}

function sum(frames: readonly HeardFrame[]): number {
  return frames.reduce((total, { sizeBytes }) => total + sizeBytes, 0)
}
