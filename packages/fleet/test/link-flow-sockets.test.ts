import { expect, test } from 'vitest'
import { answer, bytesOf, post, textOf } from './support/bodies.js'
import { startServer, startWorker } from './support/link-pair.js'
import { aborted, deferred, rejection, until } from './support/wait.js'

test('a body beyond the worker’s bound fails its own request and no other', async () => {
  await using server = await startServer()
  const worker = await startWorker({ join: server.url, limits: { requestBodyBytesMax: 1_000_000 } })
  const { requests } = server.link
  expect(await rejection(requests.send(worker.record, post(new Uint8Array(1_000_001))))).toMatchObject({
    code: 'INFERA_FLEET_UNREACHABLE',
    retryable: true,
    message: expect.stringContaining('limits.requestBodyBytesMax'),
  })
  expect(await textOf(await requests.send(worker.record, post(new Uint8Array(1_000_000))))).toBe('ok')
  worker.destroy()
})

test('bodies beyond what the worker holds at once wait for each other', async () => {
  await using server = await startServer()
  const worker = await startWorker({
    join: server.url,
    limits: { requestBodiesBytesMax: 1_000_000 },
    handler: async ({ body }) => answer(String(body.byteLength)),
  })
  const { requests } = server.link
  const sizes = Array.from({ length: 20 }, (_, index) => 600_000 + index)
  const answers = sizes.map(async (size) =>
    textOf(await requests.send(worker.record, post(new Uint8Array(size)))),
  )
  expect(await Promise.all(answers)).toEqual(sizes.map(String))
  worker.destroy()
})

test('a reader that does not read stops its handler and no other, and gets everything when it reads', async () => {
  await using server = await startServer({ limits: { streamWindowBytes: 300_000 } })
  const pulled = { slow: 0, abandoned: 0 }
  const cancelled = deferred()
  const worker = await startWorker({
    join: server.url,
    handler: async ({ path }, { signal }) => {
      if (path === '/ok') return answer('ok')
      if (path === '/abandoned') void aborted(signal).then(cancelled.resolve)
      const name = path === '/slow' ? 'slow' : 'abandoned'
      return {
        status: 200,
        headers: {},
        body: (async function* () {
          for (let count = 0; count < 200; count++) {
            pulled[name] += 1
            yield new Uint8Array(10_000).fill(count)
          }
        })(),
      }
    },
  })
  const { requests } = server.link
  const slow = await requests.send(worker.record, post('{}', '/slow'))
  const abandoned = await requests.send(worker.record, post('{}', '/abandoned'))
  // 29 chunks cost 291,856 bytes; the next is in hand, and cut.
  await until(() => pulled.slow === 30 && pulled.abandoned === 30)
  for (let count = 0; count < 50; count++) {
    expect(await textOf(await requests.send(worker.record, post('{}', '/ok')))).toBe('ok')
  }
  expect(pulled).toEqual({ slow: 30, abandoned: 30 })
  const whole = await bytesOf(slow)
  expect(whole.byteLength).toBe(2_000_000)
  expect(whole.every((byte, index) => byte === Math.floor(index / 10_000))).toBe(true)
  for await (const _chunk of abandoned.body) break
  await cancelled.promise
  expect(pulled.abandoned).toBe(30)
  worker.destroy()
})

test('a worker stops pulling from its handler while its socket is full', async () => {
  const roomy = { streamWindowBytes: 1_000_000_000, connectionWindowBytes: 1_000_000_000 }
  await using server = await startServer({ limits: roomy })
  let pulled = 0
  const worker = await startWorker({
    join: server.url,
    limits: { highWaterBytes: 100_000 },
    handler: async (_request, { signal }) => ({
      status: 200,
      headers: {},
      body: (async function* () {
        while (!signal.aborted) {
          pulled += 1
          yield new Uint8Array(100_000)
        }
      })(),
    }),
  })
  const controller = new AbortController()
  await server.link.requests.send(worker.record, post('{}'), { signal: controller.signal })
  for (const socket of server.listening.sockets) socket.pause()
  // What the kernel buffers is not ours to bound: pulling goes on until that is full, and then stands still.
  let before = -1
  for (let rounds = 0; rounds < 200 || pulled !== before; rounds++) {
    before = pulled
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
  }
  expect(pulled).toBeLessThan(1_000)
  for (const socket of server.listening.sockets) socket.resume()
  await until(() => pulled > before)
  controller.abort()
  worker.destroy()
})
