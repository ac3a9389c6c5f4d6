import { readdirSync } from 'node:fs'
import { afterEach, describe, expect, test } from 'vitest'
import { InvalidFleetOptionsError, type KvEventSource } from '../../src/index.js'
import { VirtualClock } from '../../src/virtual-clock.js'
import { ZmqKvPublisher } from '../../src/zmq/index.js'
import { utf8 } from '../support/bodies.js'
import { RowMirror, RowSource } from '../support/kv-source.js'
import { rejection, until } from '../support/wait.js'
import { recordOf, startEvents, startPublisher } from '../support/zmq-pair.js'
import { freePorts, rawDealer, rawReader, rawReplay, sequenceFrame } from '../support/zmq-peers.js'
import { Reading } from '../support/zmq-reading.js'

const open: { close(): unknown }[] = []
const later = <T extends { close(): unknown }>(each: T): T => {
  open.push(each)
  return each
}
afterEach(async () => {
  for (const each of open.splice(0)) await each.close()
})
const start = async (source: KvEventSource, options: Parameters<typeof startPublisher>[1] = {}) => {
  const started = await startPublisher(source, options)
  later(started.publisher)
  return started
}
const nothingBut = (payloads: readonly Uint8Array[], sequence: number): KvEventSource => ({
  ranks: [0],
  snapshot: () => ({ sequence, payloads }),
  subscribe: () => () => {},
})

describe('a publisher, as the reference sees it', () => {
  test('batches are three frames: topic, number in big endian, payload as it is', async () => {
    const source = new RowSource()
    const { announcement } = await start(source)
    const reader = later(await rawReader(announcement.kv_events_endpoint))
    reader.subscribe('kv-sync.here')
    expect((await reader.receive()).map(String)).toEqual(['kv-sync.here'])
    for (let count = 0; count < 300; count++) source.publish()
    expect(await reader.receive()).toEqual([
      Buffer.from('6b762d6576656e7473', 'hex'),
      Buffer.from('0000000000000000', 'hex'),
      Buffer.from('0:0'),
    ])
    for (let sequence = 1; sequence < 300; sequence++) {
      const frames = await reader.receive()
      expect(frames.map(String)).toEqual(['kv-events', sequenceFrame(sequence).toString(), `0:${sequence}`])
    }
  })

  test('replays are answered as vLLM does, from any number on, with the end marker', async () => {
    const source = new RowSource()
    const { announcement } = await start(source, { ringBatchesMax: 3 })
    const address = announcement.ext.kv_replay_endpoint
    const end = [Buffer.alloc(0), Buffer.alloc(8, 0xff), Buffer.alloc(0)]
    expect(await rawReplay(address, 0)).toEqual([end])
    for (let count = 0; count < 5; count++) source.publish()
    const batch = (sequence: number) => [
      Buffer.alloc(0),
      sequenceFrame(sequence),
      Buffer.from(`0:${sequence}`),
    ]
    expect(await rawReplay(address, 0)).toEqual([batch(2), batch(3), batch(4), end])
    expect(await rawReplay(address, 4)).toEqual([batch(4), end])
    expect(await rawReplay(address, 5)).toEqual([end])
  })

  test('batches published before the ports are open can be replayed', async () => {
    const source = new RowSource()
    const publisher = later(new ZmqKvPublisher({ source }))
    source.publish()
    const announcement = await publisher.listen()
    expect(await rawReplay(announcement.ext.kv_replay_endpoint, 0)).toHaveLength(2)
  })

  test('questions that make no sense are not answered, and the next one is', async () => {
    const source = new RowSource()
    const { announcement } = await start(source)
    const dealer = later(rawDealer(announcement.ext.kv_replay_endpoint))
    await dealer.send([sequenceFrame(0)])
    await dealer.send(['', sequenceFrame(0), 'more'])
    await dealer.send(['', Buffer.alloc(9)])
    await dealer.send(['', 'infera.kv.1', 'leap'])
    await dealer.send(['', 'infera.kv.1', 'more'])
    expect((await dealer.receive()).map(String)).toEqual(['', 'infera.kv.1', 'gone'])
    await dealer.send(['', sequenceFrame(0)])
    expect(await dealer.receive()).toEqual([Buffer.alloc(0), Buffer.alloc(8, 0xff), Buffer.alloc(0)])
  })

  test('every rank has a port of its own, one after the other', async () => {
    const port = await freePorts(4)
    const source = new RowSource([0, 1])
    const { announcement } = await start(source, {
      bind: `tcp://127.0.0.1:${port}`,
      replayBind: `tcp://127.0.0.1:${port + 2}`,
    })
    expect(announcement).toEqual({
      kv_events_endpoint: `tcp://127.0.0.1:${port}`,
      ext: {
        kv_events: 'zmq',
        kv_replay_endpoint: `tcp://127.0.0.1:${port + 2}`,
        kv_snapshot_endpoint: `tcp://127.0.0.1:${port + 2}`,
      },
    })
    source.publish(1)
    expect(await rawReplay(`tcp://127.0.0.1:${port + 2}`, 0)).toHaveLength(1)
    expect(await rawReplay(`tcp://127.0.0.1:${port + 3}`, 0)).toHaveLength(2)
  })
})

describe('a publisher and its options', () => {
  test('the host that readers connect to is told where the bind is a wildcard', async () => {
    const { announcement } = await start(new RowSource(), { bind: 'tcp://*:0', advertiseHost: 'gpu-1' })
    expect(announcement.kv_events_endpoint).toMatch(/^tcp:\/\/gpu-1:[12]\d{4}$/)
    for (const bind of ['tcp://*:0', 'tcp://0.0.0.0:0', 'tcp://[::]:0'])
      expect(() => new ZmqKvPublisher({ source: new RowSource(), bind })).toThrow('advertiseHost')
  })

  test('IPv6 hosts are in brackets', async () => {
    const source = new RowSource()
    source.publish()
    const { announcement } = await start(source, { bind: 'tcp://[::1]:0' })
    const { events } = startEvents()
    later(events)
    expect(await new Reading(events.subscribe(recordOf(announcement))).brief(1)).toEqual(['S0[0:0]'])
  })

  test.each<[string, Record<string, unknown>]>([
    ['bind', { bind: 'ipc:///tmp/x' }],
    ['advertiseHost', { advertiseHost: 'a b' }],
    ['source', { source: new RowSource([0, 2]) }],
    ['source', { source: new RowSource([]) }],
    ['options', { bnid: 'tcp://127.0.0.1:0' }],
  ])('%s that cannot be used is refused', (name, options) => {
    const construct = () => new ZmqKvPublisher({ source: new RowSource(), ...options })
    expect(construct).toThrow(InvalidFleetOptionsError)
    expect(construct).toThrow(name)
  })

  test('a port in use is tried for a while and then refused, naming the option; nothing stays open', async () => {
    const { announcement } = await start(new RowSource())
    const clock = new VirtualClock()
    for (const option of ['bind', 'replayBind']) {
      const options = { source: new RowSource(), clock, [option]: announcement.kv_events_endpoint }
      const publisher = new ZmqKvPublisher(options)
      let isOver = false
      const failure = rejection(publisher.listen()).finally(() => {
        isOver = true
      })
      await until(() => {
        clock.advance(100)
        return isOver
      })
      expect(await failure).toBeInstanceOf(InvalidFleetOptionsError)
      expect(String(await failure)).toContain(`change the option '${option}'`)
      expect(publisher.openSockets).toBe(0)
      await publisher.close()
    }
  })

  test('closing while a port is waited for ends the wait', async () => {
    const { announcement } = await start(new RowSource())
    const clock = new VirtualClock()
    const bind = announcement.kv_events_endpoint
    const publisher = new ZmqKvPublisher({ source: new RowSource(), clock, bind })
    const failure = rejection(publisher.listen())
    await until(() => clock.pendingTimers > 0)
    await publisher.close()
    expect(await failure).toBeInstanceOf(InvalidFleetOptionsError)
    expect([clock.pendingTimers, publisher.openSockets]).toEqual([0, 0])
  })

  test('closing unsubscribes from the source, and may be done twice', async () => {
    const source = new RowSource()
    const { publisher } = await start(source)
    expect(source.listenerCount).toBe(1)
    await Promise.all([publisher.close(), publisher.close()])
    expect([source.listenerCount, publisher.openSockets]).toEqual([0, 0])
    source.publish()
  })
})

describe('a publisher and readers of ours', () => {
  test('a restarted worker on the same ports brings its new cache', async () => {
    const source = new RowSource()
    source.publish()
    source.publish()
    const { publisher, announcement } = await start(source)
    const { events } = startEvents()
    later(events)
    const reader = new Reading(events.subscribe(recordOf(announcement)))
    expect(await reader.brief(1)).toEqual(['S1[0:0 0:1]'])
    await publisher.close()
    const fresh = new RowSource()
    fresh.publish()
    await start(fresh, {
      bind: announcement.kv_events_endpoint,
      replayBind: announcement.ext.kv_replay_endpoint,
    })
    expect(await reader.brief(1)).toEqual(['S0[0:0]'])
    fresh.publish()
    expect(await reader.brief(1)).toEqual(['B1=0:1'])
  })

  test('large snapshots come in parts, no faster than they are read, and whole', async () => {
    const payloads = Array.from({ length: 2_000 }, (_, index) => new Uint8Array(10_000).fill(index))
    const { announcement } = await start(nothingBut(payloads, 7))
    const { events } = startEvents()
    later(events)
    const message = await new Reading(events.subscribe(recordOf(announcement))).next()
    expect(message).toMatchObject({ type: 'snapshot', sequence: 7 })
    const arrived = message.type === 'snapshot' ? message.payloads : []
    expect(Buffer.concat(arrived as Uint8Array[]).equals(Buffer.concat(payloads))).toBe(true)
  })

  test('a reader that stops in the middle of a snapshot is forgotten after a while', async () => {
    let isLeft = false
    const payloads = (function* () {
      try {
        for (;;) yield new Uint8Array(300_000)
      } finally {
        isLeft = true
      }
    })()
    const clock = new VirtualClock()
    const { announcement } = await start(
      { ...nothingBut([], 0), snapshot: () => ({ sequence: 0, payloads }) },
      { clock },
    )
    const dealer = later(rawDealer(announcement.ext.kv_snapshot_endpoint))
    await dealer.send(['', 'infera.kv.1', 'open'])
    for (let count = 0; count < 4; count++) expect((await dealer.receive())[2]?.toString()).toBe('part')
    await until(() => clock.pendingTimers === 1)
    clock.advance(10_000)
    expect(isLeft).toBe(true)
    await dealer.send(['', 'infera.kv.1', 'more'])
    expect((await dealer.receive())[2]?.toString()).toBe('gone')
  })

  test('snapshots under way have a bound, and whoever is turned away asks again', async () => {
    const clock = new VirtualClock()
    const large = Array.from({ length: 10 }, () => new Uint8Array(300_000))
    const { announcement } = await start(nothingBut(large, 0), { clock, sessionsMax: 1 })
    const dealer = later(rawDealer(announcement.ext.kv_snapshot_endpoint))
    await dealer.send(['', 'infera.kv.1', 'open'])
    await dealer.receive()
    // The reader's time runs fast here, so that it asks again soon; that must not cost it its patience.
    const { events, clock: readerClock } = startEvents({ replyTimeoutMs: 2_000_000_000 })
    later(events)
    const first = new Reading(events.subscribe(recordOf(announcement))).next()
    await until(() => events.counts.snapshotsFailed === 1)
    clock.advance(10_000)
    let isThere = false
    void first.then(() => {
      isThere = true
    })
    await until(() => {
      readerClock.advance(10)
      return isThere
    })
    expect(await first).toMatchObject({ type: 'snapshot', sequence: 0 })
  })

  test('a snapshot beyond the bound ends the iteration with an error that says what to raise', async () => {
    const { announcement } = await start(nothingBut([new Uint8Array(2_000)], 0))
    const { events } = startEvents({ snapshotBytesMax: 1_000 })
    later(events)
    const error = await rejection(new Reading(events.subscribe(recordOf(announcement))).next())
    expect(error).toMatchObject({ code: 'INFERA_FLEET_WORKER_FAILED' })
    expect(String(error)).toContain('raise snapshotBytesMax')
    expect(events.openSockets).toBe(0)
  })

  test('a batch beyond the bound is left out, and the snapshot takes its place', async () => {
    const batches = new Set<(batch: { rank: number; sequence: number; payload: Uint8Array }) => void>()
    let sequence = -1
    const source: KvEventSource = {
      ranks: [0],
      snapshot: () => ({ sequence, payloads: [utf8('all')] }),
      subscribe: (listener) => {
        batches.add(listener)
        return () => batches.delete(listener)
      },
    }
    const publish = (payload: Uint8Array) => {
      sequence += 1
      for (const listener of batches) listener({ rank: 0, sequence, payload })
    }
    const { announcement } = await start(source, { payloadBytesMax: 1_000 })
    const { events } = startEvents()
    later(events)
    const reader = new Reading(events.subscribe(recordOf(announcement)))
    expect(await reader.brief(1)).toEqual(['S-1[all]'])
    publish(utf8('a'))
    publish(new Uint8Array(1_001))
    publish(utf8('c'))
    expect(await reader.brief(2)).toEqual(['B0=a', 'S2[all]'])
  })

  test('a reference reader’s record without our keys still gets live batches', async () => {
    const source = new RowSource()
    const { announcement } = await start(source)
    const { events } = startEvents()
    later(events)
    const bare = recordOf({ kv_events_endpoint: announcement.kv_events_endpoint })
    const reader = new Reading(events.subscribe(bare))
    const first = reader.begin()
    let isThere = false
    void first.then(() => {
      isThere = true
    })
    await until(() => {
      if (!isThere) source.publish()
      return isThere
    })
    const message = await first
    expect(message).toMatchObject({ type: 'snapshot', payloads: [] })
    expect(await reader.next()).toMatchObject({ type: 'batch', sequence: message.sequence + 1 })
  })

  test('a reader that never reads costs its worker two snapshots, and not one more', async () => {
    const source = new RowSource([0], 1_000)
    const { announcement } = await start(source)
    const { events } = startEvents({ bufferBytesMax: 16_384 })
    later(events)
    const reader = new Reading(events.subscribe(recordOf(announcement)))
    await reader.begin()
    for (let round = 1; round <= 40; round++) {
      for (let count = 0; count < 10; count++) source.publish()
      await until(() => events.counts.batches === 10 * round)
    }
    await until(() => source.snapshotsTaken === 2)
    expect(events.counts.readersBehind).toBeGreaterThan(1)
    const mirror = new RowMirror()
    while ((mirror.rows.get(0)?.length ?? 0) < 400) mirror.apply(await reader.next())
    expect(mirror.rows.get(0)).toEqual(source.row())
    expect(source.snapshotsTaken).toBe(3)
  })

  test('two readers, one slow, of many ranks, all see what was published', async () => {
    const ranks = [0, 1, 2, 3]
    const source = new RowSource(ranks)
    const { announcement } = await start(source)
    const { events } = startEvents({ bufferBytesMax: 4_096 })
    later(events)
    const record = recordOf(announcement, { dp_size: ranks.length })
    const countMax = 400
    const read = async (isSlow: boolean) => {
      const mirror = new RowMirror()
      for await (const message of events.subscribe(record)) {
        mirror.apply(message)
        if (isSlow) await new Promise((resolve) => setImmediate(resolve))
        if (ranks.every((rank) => mirror.rows.get(rank)?.length === countMax)) break
      }
      return mirror
    }
    const reading = [read(false), read(true)]
    for (let count = 0; count < countMax; count++) {
      for (const rank of ranks) source.publish(rank)
      if (count % 10 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    for (const mirror of await Promise.all(reading)) {
      for (const rank of ranks) expect(mirror.rows.get(rank)).toEqual(source.row(rank))
    }
  })
})

test('subscriptions that have ended leave no socket, timer or file behind', async () => {
  const source = new RowSource([0, 1])
  source.publish()
  const { announcement } = await start(source)
  const { events, clock } = startEvents()
  later(events)
  const record = recordOf(announcement, { dp_size: 2 })
  const filesOpen = () => readdirSync('/proc/self/fd').length
  const once = async (how: 'break' | 'abort' | 'early') => {
    const controller = new AbortController()
    const reader = new Reading(events.subscribe(record, { signal: controller.signal }))
    const first = reader.next()
    if (how !== 'early') await first
    const pending = how === 'early' ? first.catch(() => undefined) : undefined
    if (how === 'break') await reader.leave()
    else controller.abort()
    await pending
    expect([events.openSockets, clock.pendingTimers]).toEqual([0, 0])
  }
  await once('break')
  const before = filesOpen()
  for (let round = 0; round < 20; round++)
    for (const how of ['break', 'abort', 'early'] as const) await once(how)
  // The library closes its descriptors on a thread of its own; what is left of the last rounds is not a leak of all.
  await until(() => filesOpen() <= before + 5)
})
