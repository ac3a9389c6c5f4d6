import { parseWorkerRecord, seededRandom, silentLogger, VirtualClock } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { CacheView } from '../cache/cache-view.js'
import { zeroEventCounts } from '../cache/event-counters.js'
import { PrefixIndex } from '../cache/prefix-index.js'
import { until } from '../testing/router-rig.js'
import { ScriptedKvEvents, storedText } from '../testing/scripted-kv-events.js'
import { KvFollower } from './kv-follower.js'

function rig(ranks: readonly number[] = [0]) {
  const index = new PrefixIndex({ blocksMax: 10_000 })
  const counts = zeroEventCounts()
  const clock = new VirtualClock()
  const kvEvents = new ScriptedKvEvents()
  const warnings: string[] = []
  const viewOf = (rank: number) =>
    new CacheView({ index, blockSizeTokens: 4, engineHashesMax: 10_000, counts, workerId: 'a', rank })
  const views = new Map(ranks.map((rank) => [rank, viewOf(rank)]))
  const follower = new KvFollower({
    record: parseWorkerRecord({ worker_id: 'a', url: 'link://a', model_name: 'm', kv_block_size: 4 }),
    transport: kvEvents,
    views,
    counts,
    backoff: { minMs: 100, maxMs: 5_000, clock, random: seededRandom(1) },
    logger: { ...silentLogger, warn: (_, message) => warnings.push(message) },
  })
  const blocks = (rank = 0) => views.get(rank)?.blockCount
  return { follower, counts, clock, kvEvents, warnings, blocks }
}

const abcd = storedText('abcd', 4, 1)
const efgh = storedText('efgh', 4, 2)
const wxyz = storedText('wxyz', 4, 3)

describe('following the events of a worker', () => {
  test('a snapshot replaces everything, and batches go on from it', async () => {
    const { follower, kvEvents, blocks, counts } = rig()
    const source = kvEvents.of('a')
    source.snapshot(4, [abcd, efgh])
    source.batch(5, [wxyz])
    await until(() => blocks() === 3)
    source.snapshot(9, [abcd])
    await until(() => blocks() === 1)
    source.batch(10, [{ type: 'AllBlocksCleared' }])
    await until(() => blocks() === 0)
    expect([counts.snapshots, counts.batches, counts.gaps]).toEqual([2, 2, 0])
    await follower.stop()
  })

  test('ranks are told apart, each with its own numbering', async () => {
    const { follower, kvEvents, blocks, counts } = rig([0, 1])
    const source = kvEvents.of('a')
    source.snapshot(-1, [abcd], 0)
    source.snapshot(70, [efgh, wxyz], 1)
    source.batch(0, [{ type: 'AllBlocksCleared' }], 0)
    source.batch(71, [abcd], 1)
    await until(() => blocks(1) === 3)
    expect([blocks(0), counts.gaps]).toEqual([0, 0])
    await follower.stop()
  })

  test('a rank that the worker does not have is counted and changes nothing', async () => {
    const { follower, kvEvents, blocks, counts } = rig()
    kvEvents.of('a').batch(0, [abcd], 3)
    await until(() => counts.unknownRanks === 1)
    expect(blocks()).toBe(0)
    await follower.stop()
  })

  test('a batch that comes twice is applied once', async () => {
    const { follower, kvEvents, blocks, counts } = rig()
    const source = kvEvents.of('a')
    source.snapshot(0, [abcd])
    source.batch(1, [{ type: 'BlockRemoved', block_hashes: [1] }])
    source.batch(2, [abcd])
    source.batch(1, [{ type: 'BlockRemoved', block_hashes: [1] }])
    await until(() => counts.duplicateBatches === 1)
    expect(blocks()).toBe(1)
    await follower.stop()
  })

  test('after a gap the view is emptied and a fresh snapshot is asked for', async () => {
    const { follower, kvEvents, blocks, counts, clock } = rig()
    const first = kvEvents.of('a')
    first.snapshot(0, [abcd])
    first.batch(2, [efgh])
    await until(() => first.isLeft)
    expect([blocks(), counts.gaps, follower.state]).toEqual([0, 1, 'waiting'])
    await until(() => clock.pendingTimers === 1)
    await clock.advanceAsync(100)
    expect(kvEvents.of('a')).not.toBe(first)
    kvEvents.of('a').snapshot(2, [abcd, efgh])
    await until(() => blocks() === 2)
    await follower.stop()
  })

  test.each(['ends', 'fails'])('a subscription that %s is opened again after a pause', async (how) => {
    const { follower, kvEvents, blocks, clock } = rig()
    const first = kvEvents.of('a')
    first.snapshot(0, [abcd])
    await until(() => blocks() === 1)
    if (how === 'ends') first.end()
    else first.fail(new Error('the connection broke'))
    await until(() => clock.pendingTimers === 1)
    expect(kvEvents.subscriptions.get('a')).toHaveLength(1)
    await clock.advanceAsync(100)
    expect(kvEvents.subscriptions.get('a')).toHaveLength(2)
    await follower.stop()
  })

  test('payloads that cannot be read do not end it, and three in a row are called degraded until one is readable', async () => {
    const { follower, kvEvents, blocks, counts, warnings } = rig()
    const source = kvEvents.of('a')
    source.snapshot(-1, [abcd])
    const garbage = (sequence: number) =>
      source.send({ type: 'batch', rank: 0, sequence, payload: Uint8Array.of(0xc1, sequence) })
    for (const sequence of [0, 1]) garbage(sequence)
    await until(() => counts.malformedBatches === 2)
    expect(follower.state).toBe('live')
    for (const sequence of [2, 3, 4]) garbage(sequence)
    await until(() => counts.malformedBatches === 5)
    expect([follower.state, warnings.length]).toEqual(['degraded', 1])
    source.batch(5, [efgh])
    await until(() => blocks() === 2)
    expect(follower.state).toBe('live')
    await follower.stop()
  })

  test('stopping unsubscribes, wherever it stands', async () => {
    const subscribed = rig()
    await subscribed.follower.stop()
    expect(subscribed.kvEvents.of('a').signal?.aborted).toBe(true)

    const pausing = rig()
    pausing.kvEvents.of('a').end()
    await until(() => pausing.clock.pendingTimers === 1)
    await pausing.follower.stop()
    expect(pausing.clock.pendingTimers).toBe(0)
  })
})
