import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { Kvm } from '@nats-io/kv'
import type { NatsConnection } from '@nats-io/transport-node'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { KvEventMessage } from '../../src/index.js'
import {
  NatsKvEvents,
  type NatsKvEventsOptions,
  NatsKvRelay,
  type NatsKvRelayOptions,
} from '../../src/nats/index.js'
import { decodeKvEpoch } from '../../src/nats/kv-epoch.js'
import { RowMirror, RowSource } from '../support/kv-source.js'
import { quick } from '../support/nats-pair.js'
import { eventually } from '../support/nats-peer.js'
import { NatsServer, natsMissing } from '../support/nats-server.js'
import { workerRecord } from '../support/records.js'
import { rejection, until } from '../support/wait.js'

const workerId = 'host:9000'
const subject = 'infera.kv.events.aG9zdDo5MDAw.0'
const record = workerRecord(workerId)
const intervals = { ...quick, retryIntervalMs: 20 }

describe.skipIf(natsMissing)('KV events over NATS', () => {
  let server: NatsServer
  let connection: NatsConnection
  const cleanups: (() => Promise<unknown>)[] = []
  beforeEach(async () => {
    server = await NatsServer.start({ jetStream: true })
    connection = await server.connect()
  })
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
    await connection.close()
    await server[Symbol.asyncDispose]()
  })

  const startRelay = async (source: RowSource, options: Partial<NatsKvRelayOptions> = {}) => {
    const relay = new NatsKvRelay({
      ...{ url: server.url, workerId, source, resyncIntervalMs: 1, ...intervals },
      ...options,
    })
    cleanups.push(() => relay.destroy())
    await relay.ready()
    return relay
  }
  const newEvents = (options: Partial<NatsKvEventsOptions> = {}) => {
    const events = new NatsKvEvents({
      ...{ url: server.url, probeIntervalMs: 20, heartbeatIntervalMs: 100, ...intervals },
      ...options,
    })
    cleanups.push(() => events.close())
    return events
  }
  const mirrorOf = (events: NatsKvEvents, of = record) => {
    const iterator = events.subscribe(of)[Symbol.asyncIterator]()
    const mirror = new RowMirror()
    const read = async () => mirror.apply((await iterator.next()).value as KvEventMessage)
    const readUntil = async (isEnough: () => boolean) => {
      while (!isEnough()) await read()
    }
    return { iterator, mirror, read, readUntil }
  }
  const stored = async () => {
    const manager = await jetstreamManager(connection)
    const { state } = await manager.streams.info('INFERA_KV_EVENTS')
    const messages: { subject: string; data: Uint8Array; hasHeaders: boolean }[] = []
    for (let seq = state.first_seq; seq <= state.last_seq; seq++) {
      const message = await manager.streams.getMessage('INFERA_KV_EVENTS', { seq })
      if (!message) continue
      const hasHeaders = [...(message.header ?? [])].length > 0
      messages.push({ subject: message.subject, data: message.data, hasHeaders })
    }
    return messages
  }

  test('the stream is the reference’s, and batches lie in it as the engine wrote them, without headers', async () => {
    const source = new RowSource()
    source.publish()
    await startRelay(source)
    source.publish()
    source.publish()
    await eventually(async () => (await stored()).length >= 4)
    const messages = await stored()
    expect(messages.map((one) => [one.subject, one.hasHeaders])).toEqual(Array(4).fill([subject, false]))
    expect(decodeKvEpoch(messages[0]?.data ?? new Uint8Array())).toMatchObject({ sequence: 0, count: 1 })
    expect(messages.slice(1).map(({ data }) => Buffer.from(data).toString())).toEqual(['0:0', '0:1', '0:2'])
    const manager = await jetstreamManager(connection)
    expect((await manager.streams.info('INFERA_KV_EVENTS')).config).toMatchObject({
      subjects: ['infera.kv.events.>'],
      retention: 'limits',
      storage: 'file',
      discard: 'old',
      max_bytes: 268_435_456,
      max_msgs: 1_000_000,
    })
  })

  test('a relay of the reference is read from the oldest event on, by ranks, and foreign subjects are skipped', async () => {
    const events = newEvents()
    const manager = await jetstreamManager(connection)
    await manager.streams.add({ name: 'INFERA_KV_EVENTS', subjects: ['infera.kv.events.>'] })
    const publish = (rank: string, text: string) =>
      jetstream(connection).publish(`infera.kv.events.aG9zdDo5MDAw.${rank}`, text)
    await publish('0', '0:0')
    await publish('1', '1:0')
    await publish('x', 'no rank')
    await publish('7', 'no rank of this worker')
    await publish('0', '0:1')
    const { mirror, readUntil } = mirrorOf(events, workerRecord(workerId, { dp_size: 2 }))
    await readUntil(() => mirror.rows.get(0)?.length === 2 && mirror.rows.get(1)?.length === 1)
    await publish('1', '1:1')
    await readUntil(() => mirror.rows.get(1)?.length === 2)
    expect(mirror.rows).toEqual(
      new Map([
        [0, ['0:0', '0:1']],
        [1, ['1:0', '1:1']],
      ]),
    )
  })

  test('a reader slower than a relay of the reference loses nothing: the stream waits for it', async () => {
    const events = newEvents({ bufferBytesMax: 10_000 })
    const { mirror, read, readUntil } = mirrorOf(events)
    await read()
    for (let index = 0; index < 200; index++) {
      await jetstream(connection).publish(subject, `0:${index}${'x'.repeat(1_000)}`)
    }
    await readUntil(() => mirror.rows.get(0)?.length === 200)
    expect(mirror.snapshots).toBe(1)
    expect(mirror.rows.get(0)).toEqual(Array.from({ length: 200 }, (_, index) => `0:${index}`))
  })

  test('a broker killed in the middle and restarted costs no event', async () => {
    const source = new RowSource()
    await startRelay(source)
    const { mirror, readUntil } = mirrorOf(newEvents())
    source.publish()
    await readUntil(() => mirror.rows.get(0)?.length === 1)
    await server.kill()
    for (let count = 0; count < 5; count++) source.publish()
    await server.restart()
    source.publish()
    await readUntil(() => mirror.rows.get(0)?.length === 7)
    expect(mirror.rows.get(0)).toEqual(source.row())
  })

  test('a stream that is deleted is made again, and the reader gets a fresh snapshot', async () => {
    const source = new RowSource()
    await startRelay(source)
    const { mirror, readUntil } = mirrorOf(newEvents())
    source.publish()
    await readUntil(() => mirror.rows.get(0)?.length === 1)
    const manager = await jetstreamManager(connection)
    await manager.streams.delete('INFERA_KV_EVENTS')
    source.publish()
    await readUntil(() => mirror.rows.get(0)?.length === 2)
    expect(mirror.rows.get(0)).toEqual(source.row())
    source.publish()
    await readUntil(() => mirror.rows.get(0)?.length === 3)
    expect(mirror.snapshots).toBeGreaterThan(1)
  })

  test('what the stream has dropped is made up for by a snapshot, for late readers too', async () => {
    const source = new RowSource()
    await startRelay(source)
    for (let count = 0; count < 5; count++) source.publish()
    await eventually(async () => (await stored()).length >= 6)
    const manager = await jetstreamManager(connection)
    // As the limits of the stream do it: the oldest go.
    await manager.streams.purge('INFERA_KV_EVENTS', { seq: 4 })
    const { mirror, readUntil } = mirrorOf(newEvents())
    await readUntil(() => mirror.rows.has(0))
    expect(mirror.rows.get(0)).toEqual(source.row())
  })

  test('a worker that comes back under its name leaves nothing of its earlier self', async () => {
    const old = new RowSource()
    const first = await startRelay(old)
    for (let count = 0; count < 3; count++) old.publish()
    const { mirror, readUntil } = mirrorOf(newEvents())
    await readUntil(() => mirror.rows.get(0)?.length === 3)
    await first.destroy()
    const fresh = new RowSource()
    fresh.publish()
    await startRelay(fresh)
    await readUntil(() => mirror.rows.get(0)?.length === 1)
    expect((await stored()).map(({ subject: of }) => of)).toEqual([subject, subject])
  })

  test('a worker whose relay is gone is not served, and is again as another instance', async () => {
    const relay = await startRelay(new RowSource())
    const events = newEvents({ lostAfterMs: 50 })
    const mine = workerRecord(workerId, { ext: { instance_id: 'one' } })
    const { iterator, read } = mirrorOf(events, mine)
    await read()
    await relay.destroy()
    expect((await iterator.next()).done).toBe(true)
    expect(events.serves(mine)).toBe(false)
    expect(events.serves(workerRecord(workerId, { ext: { instance_id: 'two' } }))).toBe(true)
    expect(events.serves(workerRecord('other:1', { ext: { kv_events: 'zmq' } }))).toBe(false)
  })

  test('a cache beyond the reader’s bound ends the iteration with an error that says what to raise', async () => {
    const source = new RowSource([0], 1_000)
    for (let count = 0; count < 20; count++) source.publish()
    await startRelay(source)
    const { iterator } = mirrorOf(newEvents({ snapshotBytesMax: 10_000 }))
    const error = await rejection(iterator.next())
    expect(error).toMatchObject({ code: 'INFERA_FLEET_WORKER_FAILED' })
    expect(String(error)).toContain('snapshotBytesMax')
  })

  test('a cache beyond the relay’s bound is published as none, and later batches all the same', async () => {
    const source = new RowSource([0], 1_000)
    for (let count = 0; count < 20; count++) source.publish()
    const errors: unknown[] = []
    const logger = { debug() {}, info() {}, warn() {}, error: (fields: unknown) => errors.push(fields) }
    await startRelay(source, { snapshotBytesMax: 10_000, logger })
    expect(JSON.stringify(errors)).toContain('snapshotBytesMax')
    const iterator = newEvents().subscribe(record)[Symbol.asyncIterator]()
    expect((await iterator.next()).value).toEqual({ type: 'snapshot', rank: 0, sequence: 19, payloads: [] })
    source.publish()
    expect((await iterator.next()).value).toMatchObject({ type: 'batch', sequence: 20 })
  })

  describe('the bucket of views', () => {
    /** Counts batches: two of them are `92 01 02`. */
    const codec = () => {
      let count = 0
      return {
        clear: () => {
          count = 0
        },
        apply: () => {
          count += 1
        },
        encode: () =>
          Uint8Array.from([0x90 + count, ...Array.from({ length: count }, (_, index) => index + 1)]),
      }
    }
    const viewValue = async () => {
      const bucket = await new Kvm(connection).open('infera_kv_view')
      const entry = await bucket.get('aG9zdDo5MDAw.0')
      return entry ? `${entry.operation} ${Buffer.from(entry.value).toString('hex')}` : undefined
    }
    const becomes = (value: string) => eventually(async () => (await viewValue()) === value)

    test('holds each rank’s view under the reference’s key, with the last change written too', async () => {
      const source = new RowSource()
      // Made first: this broker may leave a stream's maker without an answer while others ask for that stream all the time.
      await new Kvm(connection).create('infera_kv_view')
      await startRelay(source, { viewCodec: codec(), viewWriteIntervalMs: 20 })
      await becomes('PUT 90')
      source.publish()
      source.publish()
      await becomes('PUT 920102')
    })

    test('is written a last time at close, and its keys go at deregistration', async () => {
      const source = new RowSource()
      source.publish()
      const relay = await startRelay(source, { viewCodec: codec(), viewWriteIntervalMs: 60_000 })
      await relay.close()
      expect(await viewValue()).toBe('PUT 9101')
      const second = await startRelay(source, { viewCodec: codec() })
      await second.deregister()
      expect(await viewValue()).toMatch(/^DEL/)
      expect(await stored()).toEqual([])
    })

    test('is left alone without a codec', async () => {
      const relay = await startRelay(new RowSource())
      await relay.close()
      const manager = await jetstreamManager(connection)
      expect(await rejection(manager.streams.info('KV_infera_kv_view'))).toMatchObject({ status: 404 })
    })
  })

  test('batches wait for a broker that is away within their bound, and beyond it a snapshot takes their place', async () => {
    const source = new RowSource([0], 1_000)
    await startRelay(source, { bufferBytesMax: 5_000 })
    await server.kill()
    for (let count = 0; count < 50; count++) source.publish()
    await server.restart()
    const { mirror, readUntil } = mirrorOf(newEvents())
    await readUntil(() => mirror.rows.get(0)?.length === 50)
    expect(mirror.rows.get(0)).toEqual(source.row())
    await until(() => source.listenerCount === 1)
  })

  describe('the bucket of views, of a relay of Infera 0.1', () => {
    const key = 'aG9zdDo5MDAw.0'
    const value = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'))
    const views = (events: NatsKvEvents) => {
      const iterator = events.subscribe(record)[Symbol.asyncIterator]()
      return async () => {
        const message = (await iterator.next()).value
        if (message?.type === 'view') return [...message.hashes]
        return message?.type === 'snapshot' ? 'empty' : message?.type
      }
    }

    test('stands in for a worker of which the stream says nothing, as it is and as it changes', async () => {
      const bucket = await new Kvm(connection).create('infera_kv_view')
      await bucket.put(key, value('9201cfffffffffffffffff'))
      await bucket.put('other.0', value('9109'))
      const next = views(newEvents())
      expect(await next()).toBe('empty')
      expect(await next()).toEqual([1n, 2n ** 64n - 1n])
      // An empty one says that a relay has understood nothing, and is not applied; neither is what cannot be read.
      await bucket.put(key, value('90'))
      await bucket.put(key, value('a161'))
      await bucket.put(key, value('91ff'))
      expect(await next()).toEqual([2n ** 64n - 1n])
      await bucket.delete(key)
      expect(await next()).toEqual([])
    })

    test('ends with the first batch, which is authoritative from then on', async () => {
      const bucket = await new Kvm(connection).create('infera_kv_view')
      await bucket.put(key, value('9101'))
      const next = views(newEvents())
      expect(await next()).toBe('empty')
      expect(await next()).toEqual([1n])
      await connection.request(subject, 'a batch', { timeout: 2_000 })
      expect(await next()).toBe('batch')
      await bucket.put(key, value('9102'))
      await connection.request(subject, 'another', { timeout: 2_000 })
      expect(await next()).toBe('batch')
    })
  })
})
