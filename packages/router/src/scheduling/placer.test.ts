import {
  expandTargets,
  parseWorkerRecord,
  seededRandom,
  silentLogger,
  VirtualClock,
  type WorkerRecord,
} from '@infera/fleet'
import { type CacheView, chainBlockHashes, createPrefixIndex, newKvEventCounts } from '@infera/native'
import { describe, expect, test } from 'vitest'
import { PreparedRequest } from '../request/prepared-request.js'
import { PromptBook } from '../request/prompt-book.js'
import { BytePromptModel } from '../testing/byte-prompt-model.js'
import { payloadOf, storedText } from '../testing/scripted-kv-events.js'
import { KvAwarePolicy } from './kv-aware.js'
import { LoadLedger } from './load-ledger.js'
import { type PlaceableWorker, Placer, type Plan, promptNeeded } from './placer.js'
import type { Role, RoutingPolicy } from './policy.js'
import { RoundRobinPolicy } from './round-robin.js'

type Overrides = Partial<Omit<WorkerRecord, 'worker_id'>> & { readonly isSilent?: boolean }

/** A placer over workers that a test names, with real views, index and ledger. A token of these models is a byte. */
async function rigOf(
  workers: Record<string, Overrides>,
  { policy = new KvAwarePolicy({ mixed: 1, prefill: 1, decode: 1 }) }: { policy?: RoutingPolicy } = {},
) {
  const index = createPrefixIndex({ pairsMax: 10_000 })
  const ledger = new LoadLedger()
  const prompts = new PromptBook(silentLogger)
  await prompts.load([{ name: 'm', prompt: new BytePromptModel() }])
  const views = new Map<string, CacheView>()
  const trust = new Map<string, number>()
  const fleet = Object.entries(workers).map(([workerId, { isSilent = false, ...overrides }]) => {
    const url = `http://${workerId}`
    const fields = { worker_id: workerId, url, model_name: 'm', kv_block_size: 4, ...overrides }
    const record = parseWorkerRecord(fields)
    const blockSizeTokens = record.kv_block_size ?? 0
    const targets = expandTargets(record).map((target) => {
      if (isSilent || blockSizeTokens === 0) return { target, view: undefined }
      const view = index.createView({ blockSizeTokens, engineHashesMax: 1000 })
      views.set(target.routeKey, view)
      return { target, view }
    })
    return { record, targets }
  })
  const placer = new Placer<PlaceableWorker>({
    workersOf: (model) => fleet.filter(({ record }) => record.model_name === model),
    index,
    ledger,
    policy: () => policy,
    transportKinds: new Set(['http']),
    trustOf: (routeKey) => trust.get(routeKey) ?? 1,
    clock: new VirtualClock(),
    random: seededRandom(1),
  })
  const request = (prompt: unknown, { role, ...fields }: { role?: Role; [name: string]: unknown } = {}) => {
    const body = { model: 'm', prompt, ...fields }
    return new PreparedRequest({ path: '/v1/completions', body, ...(role ? { role } : {}) }, prompts)
  }
  const place = (asked: PreparedRequest, options: { tried?: string[]; isExplained?: boolean } = {}) => {
    const how = { isExplained: false, ...options, tried: new Set(options.tried) }
    let placed = placer.place(asked, how)
    if (placed === promptNeeded) {
      expect(asked.readPrompt()).toBeUndefined()
      placed = placer.place(asked, how)
    }
    if (placed === promptNeeded) throw new Error('a prompt that was read is asked for again')
    return placed
  }
  return {
    ledger,
    trust,
    request,
    place,
    /** The target's engine says that it holds the full blocks of this text. */
    hold(routeKey: string, text: string) {
      const view = views.get(routeKey) as CacheView
      view.apply(payloadOf([storedText(text, view.blockSizeTokens)]), newKvEventCounts())
    },
    /** A plan for this prompt; fails the test when nobody may take it. */
    plan(prompt: unknown, fields: Record<string, unknown> = {}, options: { tried?: string[] } = {}) {
      const plan = place(request(prompt, fields), options)
      if (!('placement' in plan)) throw new Error('nobody may take the request')
      return plan
    },
  }
}

/** Acts upon a plan whose request has ended before the next one comes. */
function serve(plan: Plan<PlaceableWorker>, ledger: LoadLedger): string {
  const { routeKey } = plan.placement
  const booking = ledger.book(routeKey, plan.chains)
  plan.commit()
  booking.release()
  return routeKey
}

const text = 'sixteen bytes ..'

describe('placing', () => {
  test('goes where the blocks are, and books the blocks of the prompt', async () => {
    const rig = await rigOf({ a: {}, b: {} })
    rig.hold('b', text)
    const { placement, worker, chains } = rig.plan(`${text} and`)
    expect(placement).toMatchObject({ workerId: 'b', requestBlocks: 5, overlapBlocks: 4, noLocality: null })
    expect(worker.record.worker_id).toBe('b')
    expect(chains).toEqual([chainBlockHashes(Uint32Array.from(Buffer.from(`${text} and`)), 4)])
  })

  test('changes nothing until it is acted upon', async () => {
    const rig = await rigOf({ a: {}, b: {} })
    const first = rig.plan(text)
    expect(rig.plan(text).placement).toEqual(first.placement)
    first.commit()
    expect(rig.plan(text).placement.workerId).toBe('b')
  })

  test('sees what is in flight', async () => {
    const rig = await rigOf({ a: {}, b: {} })
    rig.ledger.book('a', [BigUint64Array.of(1n, 2n)])
    const { placement } = rig.plan(text)
    expect(placement.workerId).toBe('b')
    expect(placement.candidates[0]).toMatchObject({
      activeBlocks: 2,
      requestsInFlight: 1,
      cost: { total: 6 },
    })
  })

  test('counts two block sizes of one model each in its own blocks, and finds what both hold', async () => {
    const rig = await rigOf({ four: {}, eight: { kv_block_size: 8 } })
    rig.hold('four', text)
    rig.hold('eight', text)
    const facts = () =>
      rig.plan(text).placement.candidates.map((each) => [each.requestBlocks, each.overlapBlocks])
    expect(facts()).toEqual([
      [4, 4],
      [2, 2],
    ])
    rig.hold('eight', `${text}${text}`)
    const longer = rig.plan(`${text}${text}`)
    expect(longer.placement).toMatchObject({ workerId: 'eight', requestBlocks: 4, overlapBlocks: 4 })
    expect(longer.chains.map(({ length }) => length)).toEqual([4])
  })

  test('knows the ranks of a worker apart', async () => {
    const weights = { mixed: 1, prefill: 20, decode: 1 }
    const rig = await rigOf(
      { d: { dp_size: 3, disagg_mode: 'prefill' } },
      { policy: new KvAwarePolicy(weights) },
    )
    rig.hold('d#dp1', text.repeat(2).slice(0, 36))
    const { placement } = rig.plan(text.repeat(3).slice(0, 40), { role: 'prefill' })
    expect(placement).toMatchObject({ workerId: 'd', rank: 1, routeKey: 'd#dp1', overlapBlocks: 8 })
    expect(placement.candidates.map(({ rank }) => rank)).toEqual([0, 1, 2])
  })
})

describe('a worker without a block size (worked example 8)', () => {
  test.each([null, 0])('of %j has to compute what a cold one has to', async (kv_block_size) => {
    const rig = await rigOf({ kv: {}, plain: { kv_block_size } })
    const { candidates } = rig.plan('x'.repeat(40)).placement
    expect(candidates.map(({ requestBlocks, cost }) => [requestBlocks, cost?.total])).toEqual([
      [10, 10],
      [10, 10],
    ])
  })

  test('gets its share of distinct prompts, not nearly all', async () => {
    const rig = await rigOf({ kv: {}, plain: { kv_block_size: null } })
    const served = Array.from({ length: 20 }, (_, prompt) =>
      serve(rig.plan(`${prompt}`.padEnd(40, `${prompt} `)), rig.ledger),
    )
    expect(served.filter((id) => id === 'plain')).toHaveLength(10)
  })

  test('does not take a prompt away from its holder', async () => {
    const rig = await rigOf({ plain: { kv_block_size: null }, kv: {} })
    rig.hold('kv', text)
    expect(Array.from({ length: 20 }, () => serve(rig.plan(text), rig.ledger))).toEqual(Array(20).fill('kv'))
  })

  test('is taken by the measure of the smallest blocks where sizes differ', async () => {
    const rig = await rigOf({ eight: { kv_block_size: 8 }, four: {}, plain: { kv_block_size: null } })
    expect(rig.plan(text).placement.candidates.map(({ requestBlocks }) => requestBlocks)).toEqual([2, 4, 4])
  })
})

describe('workers that are left out', () => {
  test('the tried, the draining, those of another role or transport, each with its reason', async () => {
    const rig = await rigOf({
      tried: {},
      draining: { status: 'draining' },
      dead: { status: 'dead' },
      prefill: { disagg_mode: 'prefill' },
      nats: { request_transport: 'nats' },
      stranger: { model_name: 'other' },
      free: {},
    })
    for (const id of ['tried', 'draining', 'dead', 'prefill', 'nats']) rig.hold(id, text)
    const { placement } = rig.plan(text, {}, { tried: ['tried'] })
    expect([placement.workerId, placement.candidates.length]).toEqual(['free', 1])
    expect(placement.skipped).toEqual([
      { workerId: 'tried', reason: 'tried' },
      { workerId: 'draining', reason: 'not-active' },
      { workerId: 'dead', reason: 'not-active' },
      { workerId: 'prefill', reason: 'other-role' },
      { workerId: 'nats', reason: 'no-transport' },
    ])
    expect(rig.plan(text, { role: 'prefill' }).placement.workerId).toBe('prefill')
  })

  test('when nobody is left the answer is why', async () => {
    const rig = await rigOf({ a: {}, b: { status: 'draining' } })
    expect(rig.place(rig.request(text), { tried: ['a'] })).toEqual({
      skipped: [
        { workerId: 'a', reason: 'tried' },
        { workerId: 'b', reason: 'not-active' },
      ],
    })
    expect(rig.place(rig.request(text, { model: 'nobody' }))).toEqual({ skipped: [] })
  })
})

test('a batch goes where most of its prompts are held, and each counts from its own first block', async () => {
  const rig = await rigOf({ a: {}, b: {} })
  const [one, other] = ['first prompt of two', 'second one, longer than it']
  rig.hold('a', one)
  rig.hold('b', other)
  const plan = rig.plan([one, other])
  expect(plan.placement).toMatchObject({ workerId: 'b', overlapBlocks: 6, requestBlocks: 10 })
  expect(plan.placement.candidates.map(({ overlapBlocks }) => overlapBlocks)).toEqual([4, 6])
  expect(plan.chains.map(({ length }) => length)).toEqual([4, 6])
})

describe('the reason for no locality', () => {
  const two = { a: {}, b: {} }
  const picture = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'u' } }] }]

  test.each<[string, Record<string, Overrides>, unknown, Record<string, unknown>]>([
    ['too-short', two, 'abc', {}],
    ['not-tokenizable', two, null, { prompt_embeds: 'abc' }],
    ['multimodal', two, text, { messages: picture }],
    ['multimodal', two, null, { prompt_embeds: 'abc', messages: picture }],
    ['no-block-size', { a: { kv_block_size: null }, b: { kv_block_size: 0 } }, text, {}],
    ['no-cache-view', { a: { isSilent: true }, b: { isSilent: true } }, text, {}],
    ['no-tokenizer', { a: { model_name: 'n' }, b: { model_name: 'n' } }, text, { model: 'n' }],
  ])('is %s', async (reason, workers, prompt, fields) => {
    const rig = await rigOf(workers)
    expect(rig.plan(prompt, fields).placement.noLocality).toBe(reason)
  })

  test('is doubt, where the views of all candidates have proved wrong; one that is believed is enough', async () => {
    const rig = await rigOf(two)
    rig.hold('a', text)
    rig.trust.set('a', 0).set('b', 0)
    const { placement } = rig.plan(text)
    expect([placement.noLocality, placement.overlapBlocks, placement.claimedBlocks]).toEqual([
      'view-unsure',
      0,
      4,
    ])
    rig.trust.set('a', 0.5)
    expect(rig.plan(text).placement).toMatchObject({
      ...{ noLocality: null, workerId: 'a', overlapBlocks: 2, claimedBlocks: 4 },
      ...{ promptTokens: text.length, blockSizeTokens: 4 },
    })
  })

  test('is none when at least one candidate tells what it holds', async () => {
    const rig = await rigOf({ a: { isSilent: true }, b: {} })
    expect(rig.plan(text).placement.noLocality).toBeNull()
    const sized = await rigOf({ a: { kv_block_size: null }, b: {} })
    expect(sized.plan(text).placement.noLocality).toBeNull()
  })

  test('is the lack of choice, once a prompt of the model went through', async () => {
    const rig = await rigOf({ a: {} })
    const first = rig.plan(text).placement
    expect([first.noLocality, first.requestBlocks]).toEqual([null, 4])
    const second = rig.plan(text).placement
    expect([second.noLocality, second.requestBlocks]).toEqual(['single-candidate', 0])
  })

  test('is the policy where that looks at load alone', async () => {
    const rig = await rigOf(two, { policy: new RoundRobinPolicy() })
    rig.hold('b', text)
    const { placement, chains } = rig.plan(text)
    expect([placement.noLocality, placement.overlapBlocks, chains.length]).toEqual(['policy', 0, 0])
    expect(placement.candidates.map(({ cost }) => cost)).toEqual([null, null])
  })

  test('is looked for all the same when an explanation is wanted', async () => {
    for (const policy of [new RoundRobinPolicy(), new KvAwarePolicy({ mixed: 1, prefill: 1, decode: 1 })]) {
      const rig = await rigOf({ a: {} }, { policy })
      rig.hold('a', text)
      rig.plan(text)
      const plan = rig.place(rig.request(text), { isExplained: true })
      expect(plan).toMatchObject({ placement: { noLocality: null, requestBlocks: 4, overlapBlocks: 4 } })
    }
  })
})

test('a policy that chooses nobody is our bug and said to be one', async () => {
  const rig = await rigOf(
    { a: {} },
    { policy: { name: 'off', usesCache: false, choose: () => ({ index: 1 }) } },
  )
  expect(() => rig.plan(text)).toThrow(/policy 'off'/)
})
