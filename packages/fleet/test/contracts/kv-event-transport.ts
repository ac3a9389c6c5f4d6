import { afterEach, describe, expect, test } from 'vitest'
import type { KvEventMessage, KvEventSource, KvEventTransport, WorkerRecord } from '../../src/index.js'
import { RowMirror, RowSource } from '../support/kv-source.js'
import { until } from '../support/wait.js'

/** One transport and one worker whose events it brings. */
export interface KvEventTransportHarness {
  readonly transport: KvEventTransport
  readonly worker: WorkerRecord
  /** The worker dies and does not come back. */
  kill(): Promise<void>
  dispose(): Promise<void>
}

/**
 * What every `KvEventTransport` does. The harness is to hold at most 64 KiB of batches for a reader that is behind, and the
 * worker's record is to have `ranks` ranks.
 */
export function describeKvEventTransport(
  name: string,
  create: (source: KvEventSource, ranks: number) => Promise<KvEventTransportHarness>,
): void {
  describe(`${name} kv event transport`, () => {
    let harness: KvEventTransportHarness | undefined
    const start = async (source: KvEventSource, ranks = 1) => {
      harness = await create(source, ranks)
      return harness
    }
    afterEach(async () => {
      await harness?.dispose()
      harness = undefined
    })

    test('a subscriber gets a snapshot and then every batch, whenever it comes', async () => {
      const source = new RowSource()
      for (let count = 0; count < 5; count++) source.publish()
      const { transport, worker } = await start(source)
      expect(transport.serves(worker)).toBe(true)
      const mirror = new RowMirror()
      for await (const message of transport.subscribe(worker)) {
        mirror.apply(message)
        if (mirror.rows.get(0)?.length === 40) break
        // Two for each message read: publishing overlaps with everything the transport does.
        source.publish()
        if (source.row().length < 40) source.publish()
      }
      expect(mirror.rows.get(0)).toEqual(source.row().slice(0, 40))
      expect(mirror.snapshots).toBe(1)
    })

    test('a snapshot before the first batch is empty and numbered -1', async () => {
      const { transport, worker } = await start(new RowSource())
      const events = transport.subscribe(worker)[Symbol.asyncIterator]()
      expect((await events.next()).value).toEqual({ type: 'snapshot', rank: 0, sequence: -1, payloads: [] })
      await events.return?.()
    })

    test('payloads are bytes, and empty ones and large ones arrive as they are', async () => {
      const payloads = [new Uint8Array(), Uint8Array.of(0, 255, 128), new Uint8Array(3_000_000).fill(7)]
      const source: KvEventSource = {
        ranks: [0],
        snapshot: () => ({ sequence: 41, payloads }),
        subscribe: () => () => {},
      }
      const { transport, worker } = await start(source)
      for await (const message of transport.subscribe(worker)) {
        expect(message).toMatchObject({ type: 'snapshot', rank: 0, sequence: 41 })
        const arrived = message.type === 'snapshot' ? message.payloads : []
        expect(
          arrived.map((payload) =>
            Buffer.from(payload).equals(payloads[arrived.indexOf(payload)] ?? new Uint8Array(1)),
          ),
        ).toEqual([true, true, true])
        break
      }
    })

    test('every rank has its own snapshot and its own row', async () => {
      const source = new RowSource([0, 1, 2])
      source.publish(1)
      const { transport, worker } = await start(source, 3)
      const mirror = new RowMirror()
      for await (const message of transport.subscribe(worker)) {
        mirror.apply(message)
        if (mirror.rows.size < 3) continue
        const read = [...mirror.rows.values()].reduce((sum, row) => sum + row.length, 0)
        if (read >= 31) break
        source.publish(read % 3)
      }
      for (const rank of [0, 1, 2]) expect(mirror.rows.get(rank)).toEqual(source.row(rank))
    })

    test('a reader that falls behind the bound gets a fresh snapshot in place of what it missed', async () => {
      const source = new RowSource([0], 1000)
      const { transport, worker } = await start(source)
      const mirror = new RowMirror()
      const events = transport.subscribe(worker)[Symbol.asyncIterator]()
      const read = async () => mirror.apply((await events.next()).value as KvEventMessage)
      await read()
      source.publish()
      await read()
      for (let count = 0; count < 300; count++) source.publish()
      // The reader is away until the transport has given up on keeping all of it.
      await until(() => source.listenerCount === 0 || source.snapshotsTaken > 1)
      while ((mirror.rows.get(0)?.length ?? 0) < 301) await read()
      expect(mirror.rows.get(0)).toEqual(source.row())
      expect(mirror.snapshots).toBe(2)
      source.publish()
      await read()
      expect(mirror.rows.get(0)).toEqual(source.row())
      await events.return?.()
    })

    test('break and abort end a subscription at the worker too', async () => {
      const source = new RowSource()
      const { transport, worker } = await start(source)
      for await (const message of transport.subscribe(worker)) {
        expect(message.type).toBe('snapshot')
        break
      }
      await until(() => source.listenerCount === 0)
      const controller = new AbortController()
      const events = transport.subscribe(worker, { signal: controller.signal })[Symbol.asyncIterator]()
      await events.next()
      const pending = events.next()
      controller.abort()
      expect((await pending).done).toBe(true)
      await until(() => source.listenerCount === 0)
      const late = transport.subscribe(worker, { signal: controller.signal })[Symbol.asyncIterator]()
      expect((await late.next()).done).toBe(true)
    })

    test('the loss of the worker ends the iteration without throwing', async () => {
      const source = new RowSource()
      const { transport, worker, kill } = await start(source)
      const events = transport.subscribe(worker)[Symbol.asyncIterator]()
      await events.next()
      const pending = events.next()
      await kill()
      expect((await pending).done).toBe(true)
      const late = transport.subscribe(worker)[Symbol.asyncIterator]()
      expect((await late.next()).done).toBe(true)
      expect(transport.serves(worker)).toBe(false)
    })

    test('two subscribers of one worker see the same row', async () => {
      const source = new RowSource()
      const { transport, worker } = await start(source)
      const mirrors = [new RowMirror(), new RowMirror()]
      const reading = mirrors.map(async (mirror) => {
        for await (const message of transport.subscribe(worker)) {
          mirror.apply(message)
          if ((mirror.rows.get(0)?.length ?? 0) >= 20) break
          if (source.row().length < 20) source.publish()
        }
      })
      await Promise.all(reading)
      for (const mirror of mirrors) expect(mirror.rows.get(0)).toEqual(source.row())
    })
  })
}
