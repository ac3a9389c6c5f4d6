import { EmbeddedDiscovery } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { InvalidRouterOptionsError } from './errors.js'
import { type RouterOptions, resolveOptions } from './options.js'
import { type LoadPromptModelOptions, loadPromptModel } from './prompt/load-prompt-model.js'
import { Router } from './router.js'

const least: RouterOptions = { discovery: new EmbeddedDiscovery(), transports: [] }

describe('options that cannot be used are refused, naming the option:', () => {
  test.each([
    [{ discovery: undefined }, /option 'discovery' must be a Discovery/],
    [{ transports: undefined }, /option 'transports' must be an array of RequestTransport/],
    [{ requestRetrysMax: 1 }, /requestRetrysMax/],
    [{ requestRetriesMax: -1 }, /option 'requestRetriesMax'/],
    [{ requestRetriesMax: 1.5 }, /option 'requestRetriesMax'/],
    [{ requestRetriesMax: 65 }, /option 'requestRetriesMax'/],
    [{ requestsInFlightMax: 0 }, /option 'requestsInFlightMax'/],
    [{ bodyBytesMax: '1' }, /option 'bodyBytesMax'/],
    [{ overlapWeight: -0.1 }, /option 'overlapWeight'/],
    [{ overlapWeight: Number.NaN }, /option 'overlapWeight'/],
    [{ indexBlocksMax: 0 }, /option 'indexBlocksMax'/],
    [{ closeTimeoutMs: -1 }, /option 'closeTimeoutMs'/],
    [{ closeTimeoutMs: 2 ** 31 }, /option 'closeTimeoutMs'/],
    [{ firstByteTimeoutMs: 0 }, /option 'firstByteTimeoutMs'/],
    [{ idleTimeoutMs: Number.POSITIVE_INFINITY }, /option 'idleTimeoutMs'/],
    [{ basePath: 'v1' }, /option 'basePath'.*as in '\/v1'/],
    [{ basePath: '/' }, /option 'basePath'/],
    [{ basePath: '//' }, /option 'basePath'/],
    [{ basePath: '/a//b' }, /option 'basePath'/],
    [{ basePath: '/a/../b' }, /option 'basePath'/],
    [{ basePath: '/a?b' }, /option 'basePath'/],
    [{ basePath: '/\\\\host' }, /option 'basePath'/],
    [{ basePath: '/größe' }, /option 'basePath'/],
    [{ policy: 'random' }, /option 'policy' must be one of kv-aware, round-robin, least-loaded.*"random"/],
    [{ policy: {} }, /option 'policy'/],
    [{ models: [{ name: 'm' }] }, /option 'models\.0/],
    [{ models: [{ name: '', folder: 'f' }] }, /option 'models\.0/],
    [
      {
        models: [
          { name: 'm', folder: 'f' },
          { name: 'm', folder: 'g' },
        ],
      },
      /option 'models' names 'm' twice/,
    ],
  ])('%j', (wrong, message) => {
    const options = { ...least, ...wrong } as RouterOptions
    expect(() => new Router(options)).toThrow(InvalidRouterOptionsError)
    expect(() => new Router(options)).toThrow(message)
  })
})

test('nothing but discovery and transports is needed', () => {
  const { settings, models, policy } = resolveOptions(least)
  expect([models, policy]).toEqual([[], 'kv-aware'])
  expect(settings).toMatchObject({ overlapWeight: 1, requestRetriesMax: 2 })
  expect(new Router(least).policyName).toBe('kv-aware')
})

test('a policy of one’s own is used as it is', () => {
  const policy = { name: 'mine', usesCache: false, choose: () => ({ index: 0 }) }
  expect(new Router({ ...least, policy }).policyName).toBe('mine')
})

test.each([
  [{ promptCharsMax: 1023 }, /option 'promptCharsMax' of loadPromptModel/],
  [{ now: 5 }, /option 'now' of loadPromptModel/],
  [{ promptCharMax: 5000 }, /options of loadPromptModel.*promptCharMax/],
])('options of a prompt model that cannot be used are refused likewise: %j', async (wrong, message) => {
  const loaded = loadPromptModel('nowhere', wrong as LoadPromptModelOptions)
  await expect(loaded).rejects.toBeInstanceOf(InvalidRouterOptionsError)
  await expect(loaded).rejects.toThrow(message)
})

test('a router that was not started takes no requests, and one that was closed cannot be started', async () => {
  const router = new Router(least)
  const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }
  await expect(router.route({ path: '/v1/chat/completions', body })).rejects.toThrow('it is idle')
  await router.close()
  await router.close()
  await router.destroy()
  await expect(router.start()).rejects.toMatchObject({ code: 'INFERA_ROUTER_CLOSED' })
})
