import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { ZmqKvEvents } from '../../src/zmq/index.js'
import { utf8 } from '../support/bodies.js'
import { until } from '../support/wait.js'
import { recordOf, startEvents } from '../support/zmq-pair.js'
import { freePorts, RawEngine, type RawEngineOptions, sequenceFrame } from '../support/zmq-peers.js'
import { Reading } from '../support/zmq-reading.js'

describe('an engine that replays', () => {
  let events: ZmqKvEvents
  let clock: ReturnType<typeof startEvents>['clock']
  let engines: RawEngine[]
  let port: number
  beforeEach(async () => {
    ;({ events, clock } = startEvents())
    engines = []
    port = await freePorts(2)
  })
  afterEach(async () => {
    await events.close()
    for (const engine of engines) engine.close()
    await until(() => events.openSockets === 0)
    expect(clock.pendingTimers).toBe(0)
  })
  const start = async (options: Partial<RawEngineOptions> = {}) => {
    const engine = await RawEngine.start({ port, replayPort: port + 1, ...options })
    engines.push(engine)
    return engine
  }
  const record = () =>
    recordOf({
      kv_events_endpoint: `tcp://127.0.0.1:${port}`,
      ext: { kv_replay_endpoint: `tcp://127.0.0.1:${port + 1}` },
    })
  const read = () => new Reading(events.subscribe(record()))
  const publish = (engine: RawEngine, ...texts: string[]) => {
    for (const text of texts) engine.publish(utf8(text))
  }
  const lose = (engine: RawEngine, ...texts: string[]) => {
    for (const text of texts) engine.publish(utf8(text), { lost: true })
  }

  test('a whole history is the first snapshot, and what comes after it follows', async () => {
    const engine = await start()
    lose(engine, 'a', 'b', 'c')
    const reader = read()
    expect(await reader.brief(1)).toEqual(['S2[a b c]'])
    publish(engine, 'd')
    expect(await reader.brief(1)).toEqual(['B3=d'])
    expect(engine.replays).toEqual([0])
  })

  test('an engine that has published nothing has an empty cache, at once', async () => {
    await start()
    expect(await read().brief(1)).toEqual(['S-1[]'])
  })

  test('the option names a replay endpoint that the record does not', async () => {
    const engine = await start()
    lose(engine, 'a')
    const told = startEvents({ replayEndpointOf: () => `tcp://127.0.0.1:${port + 1}` })
    await using _closing = told.events
    const bare = recordOf({ kv_events_endpoint: `tcp://127.0.0.1:${port}` })
    expect(await new Reading(told.events.subscribe(bare)).brief(1)).toEqual(['S0[a]'])
  })

  test('a history whose beginning is gone follows on an empty view', async () => {
    const engine = await start({ bufferMax: 2 })
    lose(engine, 'a', 'b', 'c')
    expect(await read().brief(3)).toEqual(['S0[]', 'B1=b', 'B2=c'])
  })

  test('a gap is filled, and nothing comes twice', async () => {
    const engine = await start()
    const reader = read()
    await reader.begin()
    publish(engine, 'a')
    expect(await reader.brief(1)).toEqual(['B0=a'])
    lose(engine, 'b', 'c')
    publish(engine, 'd', 'e')
    expect(await reader.brief(4)).toEqual(['B1=b', 'B2=c', 'B3=d', 'B4=e'])
    // From the newest known one on, which is compared.
    expect(engine.replays).toEqual([0, 0])
    publish(engine, 'f')
    expect(await reader.brief(1)).toEqual(['B5=f'])
  })

  test('builds that put the topic into replays are understood', async () => {
    const engine = await start({ topicInReplay: true })
    lose(engine, 'a', 'b')
    expect(await read().brief(1)).toEqual(['S1[a b]'])
  })

  test('what the replay socket itself drops is asked for again', async () => {
    const engine = await start()
    lose(engine, ...'abcdefgh')
    engine.omitted.set(3, 1).set(6, 2)
    expect(await read().brief(1)).toEqual(['S7[a b c d e f g h]'])
    expect(engine.replays).toEqual([0, 3, 6])
  })

  test('thousands of batches are replayed', async () => {
    const engine = await start()
    for (let count = 0; count < 5_000; count++) engine.publish(utf8(`${count}`), { lost: true })
    const message = await read().next()
    expect(message).toMatchObject({ type: 'snapshot', sequence: 4_999 })
    expect(message.type === 'snapshot' && message.payloads.length).toBe(5_000)
  })

  test('a gap beyond what the engine still has empties the view', async () => {
    const engine = await start({ bufferMax: 2 })
    const reader = read()
    await reader.begin()
    publish(engine, 'a')
    expect(await reader.brief(1)).toEqual(['B0=a'])
    lose(engine, 'b', 'c')
    publish(engine, 'd')
    expect(await reader.brief(3)).toEqual(['S1[]', 'B2=c', 'B3=d'])
  })

  test('a replay that is not answered is given up, and the view begins empty with what comes live', async () => {
    const engine = await start()
    engine.answersReplays = false
    const reader = read()
    const first = reader.begin()
    await until(() => engine.replays.length === 1)
    publish(engine, 'a', 'b')
    await until(() => events.counts.batches === 2)
    clock.advance(2_000)
    await until(() => engine.replays.length === 2)
    clock.advance(2_000)
    expect(await first).toMatchObject({ type: 'snapshot', sequence: -1, payloads: [] })
    expect(await reader.brief(2)).toEqual(['B0=a', 'B1=b'])
    expect(events.counts.replaysFailed).toBe(1)
  })

  test('what was lost at the end is found without a later batch', async () => {
    const engine = await start()
    const reader = read()
    await reader.begin()
    lose(engine, 'a')
    clock.advance(15_000)
    expect(await reader.brief(1)).toEqual(['B0=a'])
  })

  test('after a reconnection to the same engine what was missed comes at once', async () => {
    const engine = await start()
    const reader = read()
    await reader.begin()
    publish(engine, 'a', 'b')
    expect(await reader.brief(2)).toEqual(['B0=a', 'B1=b'])
    engine.close()
    // Another process would not know of them: the same engine, whose network was away.
    const again = await RawEngine.start({ port, replayPort: port + 1 })
    engines.push(again)
    lose(again, 'a', 'b', 'c')
    expect(await reader.brief(1)).toEqual(['B2=c'])
    expect(events.counts.restarts).toBe(0)
  })

  test('an engine started anew is seen by its batches, however many it has published since', async () => {
    const engine = await start()
    const reader = read()
    await reader.begin()
    publish(engine, 'a', 'b')
    expect(await reader.brief(2)).toEqual(['B0=a', 'B1=b'])
    engine.close()
    const again = await RawEngine.start({ port, replayPort: port + 1 })
    engines.push(again)
    lose(again, 'w', 'x', 'y', 'z')
    expect(await reader.brief(1)).toMatchObject([expect.stringMatching(/^S\d/)])
    publish(again, 'end')
    let last = ''
    while (!last.endsWith('=end')) last = (await reader.brief(1))[0] ?? ''
    expect(last).toBe('B4=end')
    expect(events.counts.restarts).toBeGreaterThan(0)
  })

  test('a slow reader keeps what it has, and gets the rest as a replay once it has read that', async () => {
    const engine = await start()
    const tight = startEvents({ bufferBytesMax: 4_096 })
    await using _closing = tight.events
    const reader = new Reading(tight.events.subscribe(record()))
    await reader.begin()
    for (let count = 0; count < 200; count++) engine.publish(new Uint8Array(200))
    await until(() => tight.events.counts.batches === 200)
    for (let sequence = 0; sequence < 200; sequence++)
      expect(await reader.next()).toMatchObject({ type: 'batch', sequence })
    expect(tight.events.counts.readersBehind).toBeGreaterThan(0)
    expect(tight.events.counts.emptiedViews).toBe(0)
  })

  test('an engine that begins anew with every batch is not asked every time', async () => {
    const engine = await start()
    const reader = read()
    await reader.begin()
    for (let count = 1; count <= 200; count++) {
      engine.send(['kv-events', sequenceFrame(0), utf8('again')])
      await until(() => events.counts.batches === count)
    }
    expect(events.counts.restarts).toBe(199)
    // Time stands still, and with it the pauses between questions.
    expect(events.counts.replays).toBeLessThan(8)
  })

  test('what full sockets drop is replayed', async () => {
    const engine = await start({ sendHighWaterMark: 10 })
    const tight = startEvents({ receiveHighWaterMark: 10, replyTimeoutMs: 2_000_000_000 })
    await using _closing = tight.events
    const reader = new Reading(tight.events.subscribe(record()))
    await reader.begin()
    // One turn, in which nobody reads: more than the sockets and the system's buffers hold together.
    const count = 3_000
    for (let index = 0; index < count; index++) engine.publish(new Uint8Array(10_000))
    let sequence = -1
    const reading = (async () => {
      while (sequence < count - 1) {
        const message = await reader.next()
        expect(message).toMatchObject({ type: 'batch', sequence: sequence + 1 })
        sequence = message.sequence
      }
    })()
    await until(() => {
      // The last ones are missing too, and nothing comes after them that would show it.
      tight.clock.advance(1_000)
      return sequence === count - 1
    })
    await reading
    expect(tight.events.counts.batches).toBeLessThan(count)
    expect(tight.events.counts.emptiedViews).toBe(0)
  })
})
