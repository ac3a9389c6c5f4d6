import { expect, test } from 'vitest'
import { EmbeddedDiscovery, type Registration, StaticDiscovery } from '../src/index.js'
import { VirtualClock } from '../src/virtual-clock.js'
import { describeDiscovery } from './contracts/discovery.js'
import { workerRecord } from './support/records.js'
import { listen } from './support/servers.js'
import { until } from './support/wait.js'

describeDiscovery('embedded', async () => {
  const discovery = new EmbeddedDiscovery({ watchBufferMax: 2 })
  const registrations = new Map<string, Registration>()
  return {
    discovery,
    async add(workerId) {
      registrations.set(
        workerId,
        await discovery.register({ kind: 'worker', record: workerRecord(workerId) }),
      )
    },
    async remove(workerId) {
      await registrations.get(workerId)?.deregister()
    },
  }
})

describeDiscovery('static', async () => {
  const clock = new VirtualClock()
  const well = new Set<string>()
  const discovery = new StaticDiscovery({
    workers: ['a', 'b', 'c', 'd'].map((host) => ({ url: `http://${host}:1`, model_name: 'm' })),
    health: { intervalMs: 100, failuresBeforeRemoval: 1 },
    prober: async ({ worker_id }) => well.has(worker_id),
    watchBufferMax: 2,
    clock,
    random: () => 0.5,
  })
  await clock.advanceAsync(1)
  return {
    discovery,
    async add(workerId) {
      well.add(workerId)
      await clock.advanceAsync(100)
    },
    async remove(workerId) {
      well.delete(workerId)
      await clock.advanceAsync(100)
    },
  }
})

test('a static worker is asked for its health over HTTP, under its base path', async () => {
  const clock = new VirtualClock()
  const seen: string[] = []
  let status = 200
  const worker = await listen((request, response) => {
    seen.push(request.url ?? '')
    response.writeHead(status).end('x'.repeat(100_000))
  })
  const discovery = new StaticDiscovery({
    workers: [{ url: `http://127.0.0.1:${worker.port}/base/`, model_name: 'm' }],
    health: { intervalMs: 10, timeoutMs: 2_000_000_000, failuresBeforeRemoval: 2 },
    clock,
  })
  const changes: string[] = []
  const watching = (async () => {
    for await (const change of discovery.watch()) changes.push(change.type)
  })()
  // Time moves while the answers travel, so the probes' own limit is out of the way.
  const advanceUntil = async (isTrue: () => boolean) => {
    while (!isTrue()) await clock.advanceAsync(11)
  }
  await advanceUntil(() => changes.includes('entryPut') || seen.length > 1)
  status = 503
  await advanceUntil(() => changes.includes('entryRemoved'))
  expect(changes.at(-1)).toBe('entryRemoved')
  expect(new Set(seen)).toEqual(new Set(['/base/health']))
  await until(() => worker.sockets.size === 0)
  await discovery.close()
  await watching
  await worker.stop()
})
