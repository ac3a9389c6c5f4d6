import { parseWorkerRecord, seededRandom, silentLogger, VirtualClock } from '@infera/fleet'
import { type CacheView, chainBlockHashes, createPrefixIndex, tiers } from '@infera/native'
import { describe, expect, test } from 'vitest'
import { zeroEventCounts } from '../cache/kv-event-counts.js'
import { until } from '../testing/router-rig.js'
import { payloadOf, ScriptedKvEvents, storedText } from '../testing/scripted-kv-events.js'
import { KvFollower } from './kv-follower.js'

function rig(ranks: readonly number[] = [0], blocksMax = 10_000) {
  const index = createPrefixIndex({ pairsMax: blocksMax })
  const counts = zeroEventCounts()
  const clock = new VirtualClock()
  const kvEvents = new ScriptedKvEvents()
  const warnings: string[] = []
  const states: string[] = []
  const newView = () => index.createView({ blockSizeTokens: 4, engineHashesMax: blocksMax })
  const views = new Map(ranks.map((rank) => [rank, newView()]))
  const follower = new KvFollower({
    record: parseWorkerRecord({ worker_id: 'a', url: 'link://a', model_name: 'm', kv_block_size: 4 }),
    transport: kvEvents,
    index,
    views,
    counts,
    backoff: { minMs: 100, maxMs: 5_000, clock, random: seededRandom(1) },
    logger: { ...silentLogger, warn: (_, message) => warnings.push(message) },
    onState: (state) => states.push(state),
  })
  const blocks = (rank = 0) => index.blocksOf(views.get(rank)?.target ?? -1, tiers.device)
  return { follower, counts, clock, kvEvents, warnings, states, index, views, newView, blocks }
}

const abcd = storedText('abcd', 4, 1)
const efgh = storedText('efgh', 4, 2)
const wxyz = storedText('wxyz', 4, 3)

describe('a view by hashes alone', () => {
  test('is what the rank holds until anything else is said of it', async () => {
    const { follower, kvEvents, blocks, index, views } = rig()
    const source = kvEvents.of('a')
    const hashes = chainBlockHashes(
      Uint32Array.from('abcdefgh', (letter) => letter.charCodeAt(0)),
      4,
    )
    const has = (at: number) => index.has(views.get(0)?.target ?? -1, tiers.device, hashes[at] as bigint)
    source.snapshot(-1, [])
    source.view(-1, hashes)
    await until(() => blocks() === 2)
    expect([has(0), has(1), follower.state]).toEqual([true, true, 'live'])
    source.view(-1, hashes.subarray(0, 1))
    await until(() => blocks() === 1)
    // A batch has names, and what it says can be taken away: nothing without a name stays beside it.
    source.batch(0, [wxyz])
    await until(() => !has(0))
    expect(blocks()).toBe(1)
    source.view(-1, hashes)
    await until(() => blocks() === 2)
    source.snapshot(7, [abcd, efgh, wxyz])
    await until(() => blocks() === 3)
    await follower.stop()
  })
})

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
    expect([counts.snapshots, counts.batches, counts.gaps]).toEqual([2, 4, 0])
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

  test('a batch that cannot be read is as lost as one that never came', async () => {
    const { follower, kvEvents, blocks, counts, clock } = rig()
    const first = kvEvents.of('a')
    first.snapshot(-1, [abcd])
    first.send({ type: 'batch', rank: 0, sequence: 0, payload: Uint8Array.of(0xc1) })
    await until(() => first.isLeft)
    expect([blocks(), counts.malformedBatches, follower.state]).toEqual([0, 1, 'waiting'])
    await until(() => clock.pendingTimers === 1)
    await clock.advanceAsync(100)
    kvEvents.of('a').snapshot(0, [abcd, efgh])
    kvEvents.of('a').batch(1, [wxyz])
    await until(() => blocks() === 3)
    expect(follower.state).toBe('live')
    await follower.stop()
  })

  test('three that cannot be read in a row are called degraded and ask for no further snapshot, until one is readable', async () => {
    const { follower, kvEvents, blocks, counts, warnings, clock } = rig()
    const garbage = (sequence: number) =>
      kvEvents.of('a').send({ type: 'batch', rank: 0, sequence, payload: Uint8Array.of(0xc1, sequence) })
    for (const sequence of [0, 1]) {
      kvEvents.of('a').snapshot(sequence - 1, [abcd])
      garbage(sequence)
      await until(() => clock.pendingTimers === 1)
      await clock.advanceAsync(5_000)
    }
    kvEvents.of('a').snapshot(1, [abcd])
    for (const sequence of [2, 3, 4]) garbage(sequence)
    await until(() => counts.malformedBatches === 5)
    await turn()
    expect([follower.state, warnings.length, blocks()]).toEqual(['degraded', 1, 0])
    expect(kvEvents.subscriptions.get('a')).toHaveLength(3)
    kvEvents.of('a').batch(5, [efgh])
    await until(() => clock.pendingTimers === 1)
    expect([follower.state, blocks()]).toEqual(['waiting', 0])
    await clock.advanceAsync(5_000)
    kvEvents.of('a').snapshot(5, [abcd, efgh])
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

/** One event of 1024 blocks of 4 tokens, all different from those of other numbers. Some 27 kB. */
function bigEvent(number: number): unknown {
  const tokens = Array.from({ length: 4096 }, (_, index) => 1_000_000 * number + index)
  return {
    type: 'BlockStored',
    block_hashes: Array.from({ length: 1024 }, (_, index) => 1_000_000 * number + index),
    parent_block_hash: null,
    token_ids: tokens,
    block_size: 4,
    lora_id: null,
  }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('a snapshot that is long', () => {
  const events = Array.from({ length: 60 }, (_, number) => bigEvent(number + 1))
  const whole = 60 * 1024
  const payloads = events.map((event) => payloadOf([event]))

  test('lets the event loop turn on the way, and is there in the end', async () => {
    const { follower, kvEvents, blocks, states } = rig([0], 1_000_000)
    kvEvents.of('a').send({ type: 'snapshot', rank: 0, sequence: 3, payloads })
    kvEvents.of('a').batch(4, [abcd])
    const seen: number[] = []
    for (let before = -1; before !== whole + 1; await turn()) {
      before = blocks()
      if (before !== seen.at(-1)) seen.push(before)
    }
    // A slice is 256 KiB, and ends with a payload.
    const parts = seen.slice(1).map((count, index) => count - (seen[index] as number))
    expect(Math.max(...parts)).toBeLessThanOrEqual(16 * 1024)
    expect(seen.length).toBeGreaterThan(4)
    expect(seen.length).toBeLessThan(16)
    expect(parts.every((part) => part > 0)).toBe(true)
    expect(seen.at(-1)).toBe(whole + 1)
    expect(states).toEqual(['live'])
    await follower.stop()
  })

  test('shows the part that is applied and nothing of what it replaces, and is waiting until it is whole', async () => {
    const { follower, kvEvents, blocks, states, index, views } = rig([0], 1_000_000)
    const [old] = chainBlockHashes(Uint32Array.from(Buffer.from('wxyz')), 4)
    const hasOld = () => index.has(views.get(0)?.target ?? -1, tiers.device, old as bigint)
    kvEvents.of('a').snapshot(0, [wxyz])
    await until(() => hasOld() === true)
    kvEvents.of('a').send({ type: 'snapshot', rank: 0, sequence: 9, payloads })
    await until(() => blocks() > 1)
    expect(blocks()).toBeLessThan(whole)
    expect([hasOld(), follower.state]).toEqual([false, 'waiting'])
    await until(() => follower.state === 'live')
    expect([blocks(), hasOld()]).toEqual([whole, false])
    expect(states).toEqual(['live', 'waiting', 'live'])
    await follower.stop()
  })

  test('is dropped where it stands when the worker is replaced', async () => {
    const { follower, kvEvents, blocks, index, views, newView, states } = rig([0], 1_000_000)
    kvEvents.of('a').send({ type: 'snapshot', rank: 0, sequence: 0, payloads })
    await until(() => blocks() > 0)
    const old = views.get(0) as CacheView
    old.close()
    const successor = newView()
    expect(successor.target).toBe(old.target) // so what is applied to the old one would show in the new one
    await follower.stop()
    for (let turns = 0; turns < 20; turns++) await turn()
    expect([index.blocksOf(successor.target, tiers.device), states]).toEqual([0, []])
    expect(kvEvents.of('a').isLeft).toBe(true)
  })

  test('of a worker does not hold up the events of another', async () => {
    const slow = rig([0], 1_000_000)
    const quick = rig()
    slow.kvEvents.of('a').send({ type: 'snapshot', rank: 0, sequence: 0, payloads })
    await until(() => slow.blocks() > 0)
    quick.kvEvents.of('a').snapshot(0, [abcd])
    await until(() => quick.blocks() === 1)
    expect(slow.blocks()).toBeLessThan(whole)
    await slow.follower.stop()
    await quick.follower.stop()
  })
})

test('batches that wait in line let the event loop turn as well', async () => {
  const { follower, kvEvents, blocks } = rig([0], 1_000_000)
  kvEvents.of('a').snapshot(-1, [])
  await turn()
  for (let sequence = 0; sequence < 60; sequence++) kvEvents.of('a').batch(sequence, [bigEvent(sequence + 1)])
  await turn()
  expect(blocks()).toBeGreaterThan(0)
  expect(blocks()).toBeLessThan(60 * 1024)
  await until(() => blocks() === 60 * 1024)
  await follower.stop()
})
