import { expect, test } from 'vitest'
import { EmbeddedDiscovery } from '../embedded/embedded-discovery.js'
import type { Discovery, FleetChange } from '../ports/discovery.js'
import { type Logger, silentLogger } from '../ports/logger.js'
import { VirtualClock } from '../virtual-clock.js'
import { DiscoveryTargets } from './discovery-targets.js'

const server = (id: string, url: string) =>
  ({ kind: 'server', record: { server_id: id, url, version: '1', settings: {} } }) as const
const worker = {
  kind: 'worker',
  record: { worker_id: 'w:1', url: 'link://w:1', model_name: 'm' },
} as unknown as Parameters<Discovery['register']>[0]

function start(discovery: Discovery) {
  const clock = new VirtualClock()
  const stop = new AbortController()
  const sets: string[] = []
  const warnings: string[] = []
  const logger: Logger = { ...silentLogger, warn: (_fields, message) => warnings.push(message) }
  const backoff = { firstMs: 100, maxMs: 1_000 }
  const source = new DiscoveryTargets(discovery, { backoff, clock, random: () => 1, logger })
  const watching = (async () => {
    for await (const targets of source.watch(stop.signal)) sets.push(targets.map(({ url }) => url).join(' '))
  })()
  return { clock, sets, warnings, stop, watching }
}

test('servers are targets as they come and go; workers are not looked at', async () => {
  const discovery = new EmbeddedDiscovery()
  await discovery.register(server('a', 'http://a:1'))
  const { clock, sets, stop, watching } = start(discovery)
  await clock.advanceAsync(0)
  await discovery.register(worker)
  const b = await discovery.register(server('b', 'https://b:2'))
  await clock.advanceAsync(0)
  await b.update({ server_id: 'b', url: 'http://b:3', version: '1', settings: {} })
  await clock.advanceAsync(0)
  await b.deregister()
  await clock.advanceAsync(0)
  const a = 'ws://a:1/infera/v1/link'
  expect(sets).toEqual([a, `${a} wss://b:2/infera/v1/link`, `${a} ws://b:3/infera/v1/link`, a])
  stop.abort()
  await watching
})

test('a server with a url that cannot be joined is left out with a warning', async () => {
  const discovery = new EmbeddedDiscovery()
  await discovery.register(server('a', 'tcp://a'))
  await discovery.register(server('b', 'http://b'))
  const { clock, sets, warnings, stop, watching } = start(discovery)
  await clock.advanceAsync(0)
  expect(sets).toEqual(['ws://b/infera/v1/link'])
  expect(warnings).toEqual(['server announces a url that cannot be joined'])
  stop.abort()
  await watching
})

test('a watch that fails is begun again, and its snapshot takes the place of what was known', async () => {
  let watches = 0
  const flaky = {
    kind: 'flaky',
    async *watch(): AsyncGenerator<FleetChange> {
      watches += 1
      if (watches === 2) throw new Error('registry is down')
      yield { type: 'snapshot', entries: [server(`s${watches}`, `http://s${watches}`)] }
      if (watches === 1) throw new Error('registry went down')
    },
  } as unknown as Discovery
  const { clock, sets, warnings, watching } = start(flaky)
  await clock.advanceAsync(100)
  await clock.advanceAsync(200)
  // The third watch ends by itself: the registry was closed.
  await watching
  expect(sets).toEqual(['ws://s1/infera/v1/link', 'ws://s3/infera/v1/link'])
  expect(warnings).toHaveLength(2)
})
