import { silentLogger } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { type PickMessage, pickChannel } from './channels.js'
import {
  InvalidRequestError,
  InvalidRouterOptionsError,
  ModelFolderError,
  NoWorkerError,
  RouterClosedError,
  UnknownModelError,
} from './errors.js'
import type { RouterOptions } from './options.js'
import { Router } from './router.js'
import { InstantTransport } from './testing/instant-transport.js'
import { chat, RouterRig, until } from './testing/router-rig.js'
import { storedText } from './testing/scripted-kv-events.js'

const text = 'sixteen bytes ..'

/** The worker's cache holds the blocks of a text, as its events say. */
async function hold(rig: RouterRig, workerId: string, held: string, blockSizeTokens = 4): Promise<void> {
  rig.kvEvents.of(workerId).snapshot(-1, [storedText(held, blockSizeTokens)])
  const blockCount = Math.floor(Buffer.byteLength(held) / blockSizeTokens)
  await until(() => rig.router.cacheView(workerId, 0)?.blockCount === blockCount)
}

describe('route', () => {
  test('says where a request would go and why, and leaves no trace', async () => {
    await using rig = await RouterRig.start()
    await hold(rig, 'b', text)
    const placement = await rig.router.route(chat(`${text} and on`))
    expect(placement).toEqual({
      model: 'm',
      role: 'mixed',
      policy: 'kv-aware',
      workerId: 'b',
      rank: null,
      routeKey: 'b',
      requestBlocks: 5,
      overlapBlocks: 4,
      claimedBlocks: 4,
      promptTokens: 23,
      blockSizeTokens: 4,
      noLocality: null,
      candidates: [
        {
          ...{
            workerId: 'a',
            rank: null,
            routeKey: 'a',
            requestBlocks: 5,
            overlapBlocks: 0,
            claimedBlocks: 0,
          },
          ...{ activeBlocks: 0, requestsInFlight: 0, cost: { total: 5, text: 5, image: 0, load: 0 } },
        },
        {
          ...{
            workerId: 'b',
            rank: null,
            routeKey: 'b',
            requestBlocks: 5,
            overlapBlocks: 4,
            claimedBlocks: 4,
          },
          ...{ activeBlocks: 0, requestsInFlight: 0, cost: { total: 1, text: 1, image: 0, load: 0 } },
        },
      ],
      skipped: [],
    })
    expect(await rig.router.route(chat(`${text} and on`))).toEqual(placement)
    expect(rig.router.stats()).toMatchObject({ requestsInFlight: 0, picks: [], noLocality: {} })
    expect(rig.transport.calls).toEqual([])
  })

  test('finds the same worker for a chat and for its rendered text as a completion', async () => {
    await using rig = await RouterRig.start()
    await hold(rig, 'b', text)
    const completion = { path: '/v1/completions' as const, body: { model: 'm', prompt: text } }
    expect(await rig.router.route(completion)).toMatchObject({ workerId: 'b', overlapBlocks: 4 })
    expect(await rig.router.route(chat(text))).toMatchObject({ workerId: 'b', overlapBlocks: 4 })
    const ids = { ...completion, body: { model: 'm', prompt: [...Buffer.from(text)] } }
    expect(await rig.router.route(ids)).toMatchObject({ workerId: 'b', overlapBlocks: 4 })
  })

  test('looks at caches also where the policy does not', async () => {
    await using rig = await RouterRig.start({ router: { policy: 'round-robin' } })
    await hold(rig, 'b', text)
    const { candidates, policy } = await rig.router.route(chat(text))
    expect(policy).toBe('round-robin')
    expect(candidates.map(({ overlapBlocks, cost }) => [overlapBlocks, cost])).toEqual([
      [0, null],
      [4, null],
    ])
  })

  test('counts each worker in its own blocks', async () => {
    await using rig = await RouterRig.start({ workers: [] })
    await rig.register('four')
    await rig.register('eight', { kv_block_size: 8 })
    await until(() => rig.router.workers().length === 2)
    await hold(rig, 'four', text, 4)
    await hold(rig, 'eight', text, 8)
    const { candidates } = await rig.router.route(chat(text))
    expect(candidates.map(({ requestBlocks, overlapBlocks }) => [requestBlocks, overlapBlocks])).toEqual([
      [4, 4],
      [2, 2],
    ])
  })

  test('names those that were not considered', async () => {
    await using rig = await RouterRig.start({ workers: ['a'] })
    const draining = await rig.register('gone')
    await draining.drain()
    await rig.register('prefill', { disagg_mode: 'prefill' })
    await rig.register('nats', { request_transport: 'nats' })
    await rig.register('other', { model_name: 'other' })
    await until(() => rig.router.workers().length === 5)
    expect((await rig.router.route(chat(text))).skipped).toEqual([
      { workerId: 'gone', reason: 'not-active' },
      { workerId: 'prefill', reason: 'other-role' },
      { workerId: 'nats', reason: 'no-transport' },
    ])
    expect((await rig.router.route({ ...chat(text), role: 'prefill' })).workerId).toBe('prefill')
  })

  test('has an error for each reason not to go anywhere', async () => {
    await using rig = await RouterRig.start({ workers: [] })
    await expect(rig.router.route({ path: '/v1/completions', body: {} })).rejects.toThrow(InvalidRequestError)
    await expect(rig.router.route(chat(text, { model: 'nobody' }))).rejects.toThrow(UnknownModelError)
    await expect(rig.router.route(chat(text))).rejects.toThrow(NoWorkerError)
    await rig.register('nats', { request_transport: 'nats', model_name: 'held' })
    await until(() => rig.router.workers().length === 1)
    await expect(rig.router.route(chat(text, { model: 'held' }))).rejects.toThrow(/1 reached by a transport/)
  })
})

describe('a worker without a block size', () => {
  test('has to compute the whole prompt like any cold worker, so it does not draw all traffic', async () => {
    await using rig = await RouterRig.start({ workers: [] })
    await rig.register('sized')
    await rig.register('unsized', { kv_block_size: null })
    await until(() => rig.router.workers().length === 2)
    const served = []
    for (let prompt = 0; prompt < 20; prompt++)
      served.push(await rig.serve(`${prompt}`.padEnd(40, `${prompt}`)))
    expect(served.filter((id) => id === 'unsized')).toHaveLength(10)
    const [, unsized] = (await rig.router.route(chat('x'.repeat(40)))).candidates
    expect(unsized).toMatchObject({ requestBlocks: 10, overlapBlocks: 0 })
  })
})

describe('ranks behind one endpoint', () => {
  test('are targets of their own, pinned by a header', async () => {
    await using rig = await RouterRig.start({ workers: [], router: { policy: 'round-robin' } })
    await rig.register('d', { dp_size: 2 })
    await rig.register('a')
    await until(() => rig.router.workers().length === 2)
    for (let request = 0; request < 3; request++) await rig.serve(text)
    const pinned = rig.transport.calls.map(({ workerId, request }) => [
      workerId,
      request.headers['x-data-parallel-rank'],
    ])
    expect(pinned).toEqual([
      ['d', '0'],
      ['d', '1'],
      ['a', undefined],
    ])
    expect(rig.router.stats().picks.map(({ routeKey }) => routeKey)).toEqual(['d#dp0', 'd#dp1', 'a'])
  })

  test('have caches of their own', async () => {
    await using rig = await RouterRig.start({ workers: [] })
    await rig.register('d', { dp_size: 2 })
    await until(() => rig.router.workers().length === 1)
    rig.kvEvents.of('d').snapshot(-1, [storedText(text, 4)], 1)
    await until(() => rig.router.cacheView('d', 1)?.blockCount === 4)
    expect(rig.router.cacheView('d', 0)?.blockCount).toBe(0)
    expect(rig.router.cacheView('d', 2)).toBeUndefined()
    expect((await rig.router.route(chat(text))).routeKey).toBe('d#dp1')
  })

  test('a process that is one rank is one target, whichever rank its events name', async () => {
    await using rig = await RouterRig.start({ workers: [] })
    await rig.register('r', { dp_size: 4, dp_rank: 3 })
    await until(() => rig.router.workers().length === 1)
    rig.kvEvents.of('r').snapshot(-1, [storedText(text, 4)], 3)
    await until(() => rig.router.cacheView('r', 0)?.blockCount === 4)
    expect(await rig.router.route(chat(text))).toMatchObject({ routeKey: 'r', rank: null })
  })
})

describe('why no cache took part', () => {
  const reasonOf = async (rig: RouterRig, content: string, more?: Record<string, unknown>) => {
    await rig.serve(content, more)
    return rig.router.stats().noLocality
  }

  test('an image hides the text before it', async () => {
    await using rig = await RouterRig.start()
    const messages = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'u' } }] }]
    expect(await reasonOf(rig, text, { messages })).toEqual({ multimodal: 1 })
  })

  test('a model without a tokenizer', async () => {
    await using rig = await RouterRig.start({ router: { models: [] } })
    expect(await reasonOf(rig, text)).toEqual({ 'no-tokenizer': 1 })
    expect(rig.router.workers()[0]?.prompt).toEqual({
      state: 'no-tokenizer',
      template_failures: 0,
      last_error_code: null,
    })
  })

  test('a prompt that is no text', async () => {
    await using rig = await RouterRig.start()
    const body = { model: 'm', prompt_embeds: 'abc' }
    await rig.router.dispatch({ path: '/v1/completions', body })
    expect(rig.router.stats().noLocality).toEqual({ 'not-tokenizable': 1 })
    expect(rig.router.workers()[0]?.prompt).toMatchObject({ state: 'ok', template_failures: 0 })
  })

  test('less than one block', async () => {
    await using rig = await RouterRig.start()
    expect(await reasonOf(rig, 'abc')).toEqual({ 'too-short': 1 })
  })

  test('workers that register no block size', async () => {
    await using rig = await RouterRig.start({ workers: [] })
    for (const id of ['a', 'b']) await rig.register(id, { kv_block_size: null })
    await until(() => rig.router.workers().length === 2)
    expect(await reasonOf(rig, text)).toEqual({ 'no-block-size': 1 })
    expect(rig.router.workers()[0]?.cache_view).toBe('no-block-size')
  })

  test('workers whose events nobody brings', async () => {
    await using rig = await RouterRig.start({ router: { kvEvents: [] } })
    expect(await reasonOf(rig, text)).toEqual({ 'no-cache-view': 1 })
    expect(rig.router.workers()[0]?.cache_view).toBe('no-event-source')
    expect(rig.router.cacheView('a', 0)).toBeUndefined()
  })

  test.each(['round-robin', 'least-loaded'] as const)(
    '%s looks at load only, and no prompt is tokenized for it',
    async (policy) => {
      await using rig = await RouterRig.start({ router: { policy } })
      expect(await reasonOf(rig, text)).toEqual({ policy: 1 })
      expect(rig.prompt.tokenizedCount).toBe(0)
    },
  )

  test('a lone worker is no choice, but its prompts are tried until one went well', async () => {
    await using rig = await RouterRig.start({ workers: ['a'] })
    for (let request = 0; request < 3; request++) await rig.serve(text)
    expect(rig.router.stats().noLocality).toEqual({ 'single-candidate': 2 })
    expect(rig.prompt.tokenizedCount).toBe(1)
  })
})

describe('a chat template that fails', () => {
  test('costs locality and nothing else: it is counted, warned of once, and shown with the worker', async () => {
    await using rig = await RouterRig.start()
    for (let request = 0; request < 3; request++) await rig.serve(rig.prompt.breaksOn)
    expect(rig.router.stats()).toMatchObject({
      templateFailures: { m: 3 },
      noLocality: { 'template-error': 3 },
    })
    const failing = {
      state: 'failing',
      template_failures: 3,
      last_error_code: 'INFERA_ROUTER_TEMPLATE_FAILED',
    }
    expect(rig.router.workers().map(({ prompt }) => prompt)).toEqual([failing, failing])
    const warnings = rig.logs.filter(({ level }) => level === 'warn')
    expect(warnings).toHaveLength(1)
    expect(JSON.stringify(rig.logs)).not.toContain(rig.prompt.breaksOn)
    await rig.serve(text)
    expect(rig.router.workers()[0]?.prompt).toEqual({ ...failing, state: 'ok' })
  })

  test('shows in a fleet of one as well', async () => {
    await using rig = await RouterRig.start({ workers: ['a'] })
    for (let request = 0; request < 2; request++) await rig.serve(rig.prompt.breaksOn)
    expect(rig.router.workers()[0]?.prompt).toMatchObject({ state: 'failing', template_failures: 2 })
  })
})

describe('dispatch', () => {
  test('follows the caches: each conversation returns to its own worker', async () => {
    await using rig = await RouterRig.start()
    const [one, other] = ['system prompt.. one', 'system prompt.. other'].map((start) =>
      start.padEnd(80, start),
    )
    await hold(rig, 'a', one as string)
    await hold(rig, 'b', other as string)
    expect(await rig.serve(`${one} more`)).toBe('a')
    expect(await rig.serve(`${other} more`)).toBe('b')
  })

  test('tokenizes a prompt once', async () => {
    await using rig = await RouterRig.start()
    await rig.serve(text)
    expect(rig.prompt.tokenizedCount).toBe(1)
  })

  test('tells the worker who asks and passes traces on, and nothing that is between client and server', async () => {
    await using rig = await RouterRig.start()
    const headers = {
      authorization: 'Bearer secret',
      cookie: 'c=1',
      traceparent: '00-1-2-01',
      tracestate: 'a=b',
      host: 'h',
    }
    await rig.router.dispatch({ ...chat(text), headers, requestId: 'id-1' })
    expect(rig.transport.calls[0]?.request).toMatchObject({
      method: 'POST',
      path: '/v1/chat/completions',
      headers: {
        'content-type': 'application/json',
        'x-request-id': 'id-1',
        'x-infera-request-id': 'id-1',
        traceparent: '00-1-2-01',
        tracestate: 'a=b',
      },
    })
    expect(JSON.stringify(rig.transport.calls[0]?.request.headers)).not.toMatch(/secret|cookie|host/)
  })

  test('passes bytes on as they are, unless they hold keys that are ours', async () => {
    await using rig = await RouterRig.start()
    const send = async (json: string) => {
      const { body } = await rig.router.dispatch({
        path: '/v1/completions',
        body: JSON.parse(json),
        rawBody: Buffer.from(json),
      })
      await body.return?.()
      return Buffer.from(rig.transport.calls.at(-1)?.request.body ?? []).toString()
    }
    const plain = '{ "model":"m",\n"prompt":"中🎉", "seed": 12345678901234567890, "x": 1.0 }'
    expect(await send(plain)).toBe(plain)
    const annotated = '{"model":"m","_infera_direct_worker":"b","prompt":"p","seed":12345678901234567890}'
    expect(await send(annotated)).toBe('{"model":"m","prompt":"p","seed":12345678901234567890}')
  })

  test('publishes each pick for those who listen', async () => {
    await using rig = await RouterRig.start()
    const picks: PickMessage[] = []
    const listener = (message: unknown) => {
      if ((message as PickMessage).router === rig.router) picks.push(message as PickMessage)
    }
    pickChannel.subscribe(listener)
    await rig.serve(text)
    pickChannel.unsubscribe(listener)
    expect(picks).toMatchObject([{ attempt: 1, placement: { workerId: 'a', requestBlocks: 4 } }])
  })

  test('goes by a policy of the caller’s own', async () => {
    const committed: number[] = []
    const policy = {
      name: 'last',
      usesCache: true,
      choose: ({ candidates }: { candidates: readonly unknown[] }) => ({ index: candidates.length - 1 }),
      commit: (_: unknown, { index }: { index: number }) => void committed.push(index),
    }
    await using rig = await RouterRig.start({ router: { policy } })
    expect(await rig.serve(text)).toBe('b')
    expect([rig.router.policyName, committed]).toEqual(['last', [1]])
  })

  test('a worker that left takes its counts along', async () => {
    await using rig = await RouterRig.start({ workers: ['b'] })
    const registration = await rig.register('a')
    await until(() => rig.router.workers().length === 2)
    await rig.serve(text, {})
    await rig.serve(text, {})
    expect(
      rig.router
        .stats()
        .picks.map(({ routeKey }) => routeKey)
        .sort(),
    ).toEqual(['a', 'b'])
    await registration.deregister()
    await until(() => rig.router.workers().length === 1)
    expect(rig.router.stats().picks.map(({ routeKey }) => routeKey)).toEqual(['b'])
    expect(rig.router.stats().targets.map(({ routeKey }) => routeKey)).toEqual(['b'])
  })
})

describe('the life of a router', () => {
  const parts = async () => ({
    discovery: (await RouterRig.start()).discovery,
    transports: [new InstantTransport()],
  })

  test.each([
    ['a misspelt option', { overlapWieght: 1 }, /overlapWieght/],
    ['a negative weight', { overlapWeight: -1 }, /overlapWeight/],
    ['a fraction of retries', { requestRetriesMax: 0.5 }, /requestRetriesMax/],
    ['an unknown policy', { policy: 'random' }, /policy/],
    ['a model without a folder', { models: [{ name: 'm' }] }, /models\.0/],
    [
      'a model named twice',
      {
        models: [
          { name: 'm', folder: 'a' },
          { name: 'm', folder: 'b' },
        ],
      },
      /'m' twice/,
    ],
    ['no transports', { transports: undefined }, /transports/],
    ['no discovery', { discovery: undefined }, /discovery/],
  ])('%s is refused by name', async (_, wrong, message) => {
    const options = { ...(await parts()), ...wrong } as unknown as RouterOptions
    expect(() => new Router(options)).toThrow(InvalidRouterOptionsError)
    expect(() => new Router(options)).toThrow(message)
  })

  test('a model that cannot be loaded fails the start, naming its folder', async () => {
    const router = new Router({
      ...(await parts()),
      models: [{ name: 'm', folder: '/no/such/folder' }],
      logger: silentLogger,
    })
    await expect(router.start()).rejects.toThrow(ModelFolderError)
    await expect(router.start()).rejects.toThrow('/no/such/folder')
    await router.close()
  })

  test('takes requests only while it is open, and can be closed and destroyed in any state, again and again', async () => {
    const idle = new Router(await parts())
    await expect(idle.route(chat(text))).rejects.toThrow(RouterClosedError)
    await idle.close()
    await expect(idle.start()).rejects.toThrow(RouterClosedError)

    const rig = await RouterRig.start()
    expect(rig.router.state).toBe('open')
    await Promise.all([rig.router.close(), rig.router.close(), rig.router.destroy()])
    await rig.router.destroy()
    expect(rig.router.state).toBe('closed')
    await expect(rig.router.dispatch(chat(text))).rejects.toThrow(RouterClosedError)
    expect(rig.router.workers()).toEqual([])
  })
})
