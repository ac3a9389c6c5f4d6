import { describe, expect, test } from 'vitest'
import { chat, RouterRig, textOf, until } from '../testing/router-rig.js'
import { storedText } from '../testing/scripted-kv-events.js'

const text = 'one two three four five six seven eight nine ten'

interface Told {
  readonly prompt?: number
  readonly cached?: number | null
}

/** A router over two workers with blocks of 4 tokens; `a` tells that it holds the text, and answers with what the test says. */
async function rigOf(router: Record<string, unknown> = {}) {
  const rig = await RouterRig.start({ router: { parityWindow: 4, parityPersistsMs: 1_000, ...router } })
  const told: { now: Told } = { now: {} }
  rig.transport.answer = (workerId) => {
    const { prompt = text.length, cached = text.length - 4 } = workerId === 'a' ? told.now : { cached: 0 }
    const details = cached === null ? {} : { prompt_tokens_details: { cached_tokens: cached } }
    return { text: JSON.stringify({ choices: [], usage: { prompt_tokens: prompt, ...details } }) }
  }
  const holds = async () => {
    rig.kvEvents.of('a').snapshot(0, [storedText(text, 4)])
    rig.kvEvents.of('b').snapshot(0, [])
    await until(() => rig.router.cacheView('a', 0)?.blockCount === 12)
  }
  await holds()
  /** Requests a second apart, each read to its end, until `a` has answered so many. */
  const serve = async (answer: Told, count = 1) => {
    told.now = answer
    for (let answered = 0; answered < count; ) {
      await rig.clock.advanceAsync(1_000)
      const { workerId, body } = await rig.router.dispatch(chat(text))
      await textOf(body)
      if (workerId === 'a') answered += 1
    }
  }
  const trust = () => rig.router.workers().find(({ worker_id }) => worker_id === 'a')?.cache_trust
  const overlap = async () => (await rig.router.route(chat(text))).candidates[0]
  return {
    rig,
    holds,
    serve,
    trust,
    overlap,
    warnings: () => rig.logs.filter(({ level }) => level === 'warn'),
  }
}

describe('a view whose predictions fail', () => {
  test('counts half, then nothing, with one warning that names the cause, and is brought anew', async () => {
    const { rig, serve, trust, overlap, warnings } = await rigOf()
    await using _closing = rig
    const first = rig.kvEvents.of('a')
    await serve({ cached: 0 }, 4)
    expect(trust()).toEqual({ state: 'doubted', cause: 'view-stale' })
    expect(await overlap()).toMatchObject({ claimedBlocks: 12, overlapBlocks: 6 })
    expect(warnings()).toMatchObject([
      {
        fields: { target: 'a', state: 'doubted', cause: 'view-stale' },
        message: /disagrees with its engine: .*reuses less/,
      },
    ])
    await until(() => first.isLeft)
    await rig.clock.advanceAsync(1_000)
    expect(rig.kvEvents.of('a')).not.toBe(first)
    expect(rig.router.stats().parity).toMatchObject({
      'over-claims': 4,
      predictedTokens: 192,
      reportedTokens: 0,
    })
  })

  test('is distrusted when the new one fails as well, and picks say that no view was believed', async () => {
    const { rig, holds, serve, trust, overlap, warnings } = await rigOf()
    await using _closing = rig
    await serve({ cached: 0 }, 4)
    await rig.clock.advanceAsync(1_000)
    await holds()
    await rig.discovery.register({
      kind: 'server',
      record: { server_id: 's', url: 'http://s', version: '1', settings: {} },
    })
    await serve({ cached: 0 }, 8)
    expect(trust()).toEqual({ state: 'distrusted', cause: 'view-stale' })
    expect(await overlap()).toMatchObject({ claimedBlocks: 12, overlapBlocks: 0 })
    expect(warnings()).toHaveLength(1)
  })

  test('is believed again once it agrees', async () => {
    const { rig, holds, serve, trust, overlap } = await rigOf()
    await using _closing = rig
    const changes: unknown[] = []
    rig.router.events.on('viewTrustChanged', ({ routeKey, state, previous }) =>
      changes.push([routeKey, previous, state]),
    )
    await serve({ cached: 0 }, 4)
    await rig.clock.advanceAsync(1_000)
    await holds()
    await serve({}, 2)
    expect(trust()).toEqual({ state: 'trusted', cause: null })
    expect(await overlap()).toMatchObject({ claimedBlocks: 12, overlapBlocks: 12 })
    expect(changes).toEqual([
      ['a', 'trusted', 'doubted'],
      ['a', 'doubted', 'trusted'],
    ])
  })
})

test('a prompt of which the engine counts other tokens is named as the cause, also where it reports no cache use', async () => {
  const { rig, serve, trust, warnings } = await rigOf()
  await using _closing = rig
  await serve({ prompt: text.length + 9, cached: null }, 4)
  expect(trust()).toEqual({ state: 'doubted', cause: 'prompt-differs' })
  expect(warnings()[0]?.message).toContain('chat template included')
})

test('a view that knows too little is asked for anew, and what it says counts in full', async () => {
  const { rig, serve, trust, overlap } = await rigOf()
  await using _closing = rig
  rig.kvEvents.of('a').batch(1, [{ type: 'AllBlocksCleared' }])
  rig.kvEvents.of('a').batch(2, [storedText(text.slice(0, 8), 4, 100)])
  await until(() => rig.router.cacheView('a', 0)?.blockCount === 2)
  await serve({ cached: 44 }, 4)
  expect(trust()).toEqual({ state: 'doubted', cause: 'view-incomplete' })
  expect(await overlap()).toMatchObject({ claimedBlocks: 2, overlapBlocks: 2 })
})

test('engines that agree, or do not say what they reuse, are believed, and are told apart', async () => {
  const { rig, serve, trust } = await rigOf()
  await using _closing = rig
  await serve({}, 10)
  await serve({ cached: null }, 3)
  expect(trust()).toEqual({ state: 'trusted', cause: null })
  expect(rig.router.stats().parity).toMatchObject({ agrees: 10, unreported: 3, 'over-claims': 0 })
})

test('with parityWindow 0 nothing is compared', async () => {
  const { rig, serve, trust } = await rigOf({ parityWindow: 0 })
  await using _closing = rig
  await serve({ cached: 0 }, 10)
  expect(trust()?.state).toBe('trusted')
  expect(rig.router.stats().parity['over-claims']).toBe(0)
})

test('a new process under the name of one that was doubted begins trusted', async () => {
  const { rig, serve, trust } = await rigOf()
  await using _closing = rig
  await serve({ cached: 0 }, 4)
  await rig.register('a', { ext: { instance_id: 'another' } })
  await until(() => trust()?.state === 'trusted')
})
