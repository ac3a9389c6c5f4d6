import { expect, test } from 'vitest'
import { TransportError } from '../src/index.js'
import { describeKvEventTransport } from './contracts/kv-event-transport.js'
import { RowSource } from './support/kv-source.js'
import { startServer, startWorker } from './support/link-pair.js'
import { workerRecord } from './support/records.js'
import { rejection } from './support/wait.js'

describeKvEventTransport('link', async (source, ranks) => {
  const server = await startServer({ limits: { kvWindowBytes: 65_536 } })
  const record = workerRecord('w:1', ranks > 1 ? { dp_size: ranks } : {})
  const limits = { kvBufferBytesMax: 65_536 }
  const worker = await startWorker({ join: server.url, record, kvEvents: source, limits })
  return {
    transport: server.link.kvEvents,
    worker: record,
    kill: async () => {
      worker.destroy()
      for await (const change of server.discovery.watch()) {
        if (change.type === 'entryRemoved' || (change.type === 'snapshot' && change.entries.length === 0))
          break
      }
    },
    dispose: async () => {
      worker.destroy()
      await server[Symbol.asyncDispose]()
    },
  }
})

test('a worker without kv events is not served, and a subscription to it ends at once', async () => {
  await using server = await startServer()
  const worker = await startWorker({ join: server.url })
  expect(server.link.kvEvents.serves(worker.record)).toBe(false)
  for await (const message of server.link.kvEvents.subscribe(worker.record)) expect.fail(message.type)
  worker.destroy()
})

test('a snapshot beyond the bound ends the iteration with an error that says what to raise', async () => {
  for (const limits of [
    { server: 10_000, worker: 1_000_000 },
    { server: 1_000_000, worker: 10_000 },
  ]) {
    await using server = await startServer({ limits: { snapshotBytesMax: limits.server } })
    const source = new RowSource([0], 1000)
    for (let count = 0; count < 20; count++) source.publish()
    const worker = await startWorker({
      join: server.url,
      kvEvents: source,
      limits: { snapshotBytesMax: limits.worker },
    })
    const events = server.link.kvEvents.subscribe(worker.record)[Symbol.asyncIterator]()
    const error = await rejection(events.next())
    expect(error).toBeInstanceOf(TransportError)
    expect(error).toMatchObject({ code: 'INFERA_FLEET_WORKER_FAILED' })
    expect(String(error)).toContain('limits.snapshotBytesMax')
    worker.destroy()
  }
})

test('a rank that the worker does not have leaves the others served', async () => {
  await using server = await startServer()
  const source = new RowSource([0])
  const record = workerRecord('w:1', { dp_size: 2 })
  const worker = await startWorker({ join: server.url, record, kvEvents: source })
  const events = server.link.kvEvents.subscribe(record)[Symbol.asyncIterator]()
  expect((await events.next()).value).toMatchObject({ type: 'snapshot', rank: 0 })
  source.publish()
  expect((await events.next()).value).toMatchObject({ type: 'batch', rank: 0, sequence: 0 })
  worker.destroy()
  expect((await events.next()).done).toBe(true)
})
