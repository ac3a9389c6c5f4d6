import { describe, expect, test } from 'vitest'
import { InvalidRouterOptionsError, type RouterUpdate, type RoutingPolicy } from '../src/index.js'
import { ScriptedKvEvents, storedText } from '../src/testing/scripted-kv-events.js'
import { chat, chatBody, expectIdle, settled, startFleet, textOf, workerRecord } from './support/fleet.js'
import { Feed, json, silence, sseOf } from './support/scripted-transport.js'

const costOf = (placement: { candidates: readonly { cost: { text: number } | null }[] }) =>
  placement.candidates[0]?.cost?.text
const costOfRole = async (
  role: 'mixed' | 'prefill' | 'decode',
  router: Awaited<ReturnType<typeof startFleet>>['router'],
) => costOf(await router.route({ ...chat(), role }))

describe('a change that cannot be made is refused, and nothing of it happens:', () => {
  test.each([
    [{ overlapWeight: -1 }, /option 'overlapWeight'/],
    [{ requestRetriesMax: 1000 }, /option 'requestRetriesMax'/],
    [{ firstByteTimeoutMs: 0 }, /option 'firstByteTimeoutMs'/],
    [{ idleTimeoutMs: 2 ** 31 }, /option 'idleTimeoutMs'/],
    [{ basePath: '/v1/' }, /option 'basePath'/],
    [{ policy: 'best' }, /option 'policy' must be one of/],
    [{ policy: null }, /option 'policy' must be one of/],
    [{ bodyBytesMax: null }, /option 'bodyBytesMax'/],
    [
      { overlapWieght: 1 },
      /option 'overlapWieght' is no option; those that can change are policy, overlapWeight,/,
    ],
    [
      { discovery: {} },
      /option 'discovery' cannot change while the router runs; those that can change are policy,/,
    ],
    [{ models: [] }, /option 'models' cannot change while the router runs/],
    [{ clock: undefined }, /option 'clock' cannot change while the router runs/],
  ])('%j', async (wrong, message) => {
    await using fleet = await startFleet()
    const { router } = fleet
    const before = router.options
    const update = { requestsInFlightMax: 5, policy: 'round-robin', ...wrong } as RouterUpdate
    expect(() => router.update(update)).toThrow(InvalidRouterOptionsError)
    expect(() => router.update(update)).toThrow(message)
    expect(router.options).toEqual(before)
    expect(router.policyName).toBe('kv-aware')
  })

  test('nothing at all', async () => {
    await using fleet = await startFleet()
    expect(() => fleet.router.update(null as never)).toThrow(/must be an object/)
  })
})

test('what a change names is in force at once, what it does not name stays, and undefined names nothing', async () => {
  await using fleet = await startFleet({ requestRetriesMax: 1 })
  const { router } = fleet
  router.update({ closeTimeoutMs: 5, requestsInFlightMax: undefined } as RouterUpdate)
  router.update({ policy: 'least-loaded', idleTimeoutMs: null })
  expect(router.options).toMatchObject({
    closeTimeoutMs: 5,
    requestsInFlightMax: 65_536,
    requestRetriesMax: 1,
    idleTimeoutMs: null,
    policy: 'least-loaded',
  })
})

test('the options that are read are a copy', async () => {
  await using fleet = await startFleet()
  Object.assign(fleet.router.options, { requestsInFlightMax: 0 })
  expect(fleet.router.options.requestsInFlightMax).toBe(65_536)
})

test('weights count from the next placement on, and a role follows overlapWeight again with null', async () => {
  await using fleet = await startFleet()
  const { router } = fleet
  const requestBlocks = (await router.route(chat())).requestBlocks
  expect(costOf(await router.route(chat()))).toBe(requestBlocks)
  router.update({ overlapWeight: 3 })
  expect(costOf(await router.route(chat()))).toBe(3 * requestBlocks)
})

test('the weight of a role is its own until null', async () => {
  await using fleet = await startFleet({ overlapWeight: 2, prefillOverlapWeight: 20 }, [
    workerRecord('p', { disagg_mode: 'prefill' }),
    workerRecord('d', { disagg_mode: 'decode' }),
  ])
  const { router } = fleet
  const { requestBlocks } = await router.route({ ...chat(), role: 'prefill' })
  const costs = () => Promise.all([costOfRole('prefill', router), costOfRole('decode', router)])
  expect(await costs()).toEqual([20 * requestBlocks, 2 * requestBlocks])
  router.update({ prefillOverlapWeight: null, decodeOverlapWeight: 0 })
  expect(await costs()).toEqual([2 * requestBlocks, 0])
})

test('another policy decides from the next placement on, retries of running requests included', async () => {
  await using fleet = await startFleet()
  const { router } = fleet
  const last: RoutingPolicy = {
    name: 'last',
    usesCache: false,
    choose: ({ candidates }) => ({ index: candidates.length - 1 }),
  }
  fleet.transport
    .script('a', () => {
      router.update({ policy: last })
      return json({}, 503)
    })
    .script('*', () => json({}))
  const { placements, body } = await router.dispatch(chat())
  expect(placements.map(({ policy, workerId }) => [policy, workerId])).toEqual([
    ['kv-aware', 'a'],
    ['last', 'c'],
  ])
  await textOf(body)
  expectIdle(router)
})

test('a policy that is named by the name it has keeps what it remembers; another one starts from nothing', async () => {
  await using fleet = await startFleet({ policy: 'round-robin' })
  const { router } = fleet
  fleet.transport.script('*', () => json({}))
  const serve = async () => {
    const { workerId, body } = await router.dispatch(chat())
    await textOf(body)
    return workerId
  }
  expect(await serve()).toBe('a')
  router.update({ policy: 'round-robin' })
  expect(await serve()).toBe('b')
  router.update({ policy: 'kv-aware' })
  router.update({ policy: 'round-robin' })
  expect(await serve()).toBe('a')
})

test('a running request keeps the retries and times that it began with', async () => {
  await using fleet = await startFleet({ requestRetriesMax: 2 })
  fleet.transport.script('*', (call) => {
    if (call.workerId === 'a') fleet.router.update({ requestRetriesMax: 0, firstByteTimeoutMs: 1 })
    return json({}, 503)
  })
  const first = await fleet.router.dispatch(chat())
  expect(first.placements).toHaveLength(3)
  await textOf(first.body)
  const second = await fleet.router.dispatch(chat())
  expect(second.placements).toHaveLength(1)
  await textOf(second.body)
})

test('requests beyond a lower requestsInFlightMax run on, and no further one is taken until it is held', async () => {
  await using fleet = await startFleet()
  const feeds = [new Feed().push('1'), new Feed().push('2')]
  let next = 0
  fleet.transport.script('*', () => sseOf(feeds[next++] as Feed))
  const running = [await fleet.router.dispatch(chat()), await fleet.router.dispatch(chat())]
  fleet.router.update({ requestsInFlightMax: 1 })
  await expect(fleet.router.dispatch(chat())).rejects.toMatchObject({
    code: 'INFERA_ROUTER_OVERLOADED',
    limit: 1,
  })
  for (const feed of feeds) feed.end()
  expect(await Promise.all(running.map(({ body }) => textOf(body)))).toEqual(['1', '2'])
  fleet.transport.script('*', () => json({}))
  await textOf((await fleet.router.dispatch(chat())).body)
})

test('bodyBytesMax holds for bodies that are read afterwards', async () => {
  await using fleet = await startFleet()
  fleet.transport.script('*', () => json({}))
  const post = () =>
    fleet.router.fetch(
      new Request('http://r/v1/chat/completions', { method: 'POST', body: JSON.stringify(chatBody()) }),
    )
  expect((await post()).status).toBe(200)
  fleet.router.update({ bodyBytesMax: 10 })
  expect((await post()).status).toBe(413)
})

test('the bound of a cache holds for workers that join afterwards', async () => {
  const kvEvents = new ScriptedKvEvents()
  await using fleet = await startFleet({ kvEvents: [kvEvents] }, [workerRecord('a')])
  const { router } = fleet
  const held = () => router.cacheView('a', 0)?.blockCount
  kvEvents.of('a').snapshot(0, [storedText('aaaabbbbcccc', 4, 1)])
  await settled()
  expect(held()).toBe(3)
  router.update({ cacheBlocksMax: 2 })
  expect(held()).toBe(3)
  kvEvents.of('a').batch(1, [storedText('dddd', 4, 11)])
  await settled()
  expect(held()).toBe(4)
  const joined = await fleet.discovery.register({ kind: 'worker', record: workerRecord('late') })
  await settled()
  kvEvents.of('late').snapshot(0, [storedText('aaaabbbbcccc', 4, 1)])
  await settled()
  expect(router.cacheView('late', 0)?.blockCount).toBe(2)
  await joined.deregister()
})

test('closeTimeoutMs is that of the moment of close', async () => {
  await using fleet = await startFleet()
  fleet.transport.script('*', silence)
  const dispatched = fleet.router.dispatch(chat())
  dispatched.catch(() => {
    // Looked at below.
  })
  await fleet.transport.call(0)
  fleet.router.update({ closeTimeoutMs: 0 })
  await fleet.router.close()
  await expect(dispatched).rejects.toMatchObject({ code: 'INFERA_ROUTER_CLOSED' })
})

test('two routers of one process have options and events of their own', async () => {
  await using one = await startFleet()
  await using other = await startFleet()
  const told: string[] = []
  one.router.events.on('optionsChanged', () => told.push('one'))
  other.router.events.on('optionsChanged', () => told.push('other'))
  one.router.update({ overlapWeight: 9 })
  await settled()
  expect([one.router.options.overlapWeight, other.router.options.overlapWeight]).toEqual([9, 1])
  expect(told).toEqual(['one'])
})
