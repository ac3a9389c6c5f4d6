import { describe, expect, test } from 'vitest'
import { VirtualClock } from '../virtual-clock.js'
import { StaticDiscovery, type StaticDiscoveryOptions } from './static-discovery.js'
import { readWorkerList } from './worker-list.js'

describe('a static list of workers', () => {
  test.each([
    ['http://10.0.0.1:8000', '10.0.0.1:8000'],
    ['http://10.0.0.1:8000/base/', '10.0.0.1:8000'],
    ['http://engine', 'engine:80'],
    ['https://engine', 'engine:443'],
    ['http://[::1]:8080', '[::1]:8080'],
  ])('%s is known as %s', (url, workerId) => {
    const [record] = readWorkerList([{ url, model_name: 'm', engine: 'vllm', mine: 1 }])
    expect(record).toMatchObject({
      worker_id: workerId,
      url: url.replace(/\/$/, ''),
      engine: 'vllm',
      mine: 1,
    })
  })

  test('an id that is given is kept', () => {
    expect(readWorkerList([{ url: 'http://a:1', model_name: 'm', worker_id: 'x' }])[0]?.worker_id).toBe('x')
  })

  test('two workers of one id, and urls that are none, are errors', () => {
    const twice = [1, 2].map((path) => ({ url: `http://a:1/${path}`, model_name: 'm' }))
    expect(() => readWorkerList(twice)).toThrow(/two static workers have the id 'a:1'/)
    for (const url of ['a:1', 'ftp://a', '']) {
      expect(() => readWorkerList([{ url, model_name: 'm' }])).toThrow(/must be an http or https URL/)
    }
    expect(() => readWorkerList([{ url: 'http://a:1', model_name: '' }])).toThrow(/model_name/)
  })
})

describe('StaticDiscovery', () => {
  test('without health every worker is always present', async () => {
    const discovery = new StaticDiscovery({ workers: [{ url: 'http://a:1', model_name: 'm' }] })
    for await (const change of discovery.watch()) {
      expect(change).toMatchObject({
        type: 'snapshot',
        entries: [{ record: { worker_id: 'a:1', status: 'active' } }],
      })
      break
    }
    await discovery.close()
  })

  test('registers no workers', async () => {
    const discovery = new StaticDiscovery({ workers: [] })
    const [record] = readWorkerList([{ url: 'http://a:1', model_name: 'm' }])
    if (!record) throw new Error('no record')
    await expect(discovery.register({ kind: 'worker', record })).rejects.toMatchObject({
      code: 'INFERA_FLEET_READ_ONLY',
    })
  })

  test('a worker comes with its first good probe and goes after so many bad ones in a row', async () => {
    const { changes, probe, advance, close } = start({ failuresBeforeRemoval: 2 })
    await advance(0)
    expect(changes).toEqual(['snapshot'])
    probe.answer = 'well'
    await advance(100)
    expect(changes).toEqual(['snapshot', 'entryPut'])
    for (const answer of ['ill', 'well', 'ill'] as const) {
      probe.answer = answer
      await advance(100)
    }
    expect(changes).toEqual(['snapshot', 'entryPut'])
    await advance(100)
    expect(changes).toEqual(['snapshot', 'entryPut', 'entryRemoved leaseLost'])
    probe.answer = 'well'
    await advance(100)
    expect(changes.at(-1)).toBe('entryPut')
    await close()
  })

  test('a probe that throws or does not end in time is a bad one, and a late one is cut short', async () => {
    const { changes, probe, advance, close } = start({ failuresBeforeRemoval: 1, timeoutMs: 30 })
    probe.answer = 'well'
    await advance(100)
    probe.answer = 'throws'
    await advance(100)
    expect(changes.at(-1)).toBe('entryRemoved leaseLost')
    probe.answer = 'well'
    await advance(100)
    expect(changes.at(-1)).toBe('entryPut')
    probe.answer = 'never'
    await advance(131)
    expect(changes.at(-1)).toBe('entryRemoved leaseLost')
    expect(probe.aborted).toBe(1)
    await close()
  })

  test('close ends probes that run and leaves no timer', async () => {
    const { clock, probe, advance, close } = start({})
    probe.answer = 'never'
    await advance(100)
    expect(clock.pendingTimers).toBe(1)
    await close()
    expect(clock.pendingTimers).toBe(0)
    expect(probe.aborted).toBe(1)
  })
})

function start(health: NonNullable<StaticDiscoveryOptions['health']>) {
  const clock = new VirtualClock()
  const probe = { answer: 'ill' as 'well' | 'ill' | 'throws' | 'never', aborted: 0 }
  const discovery = new StaticDiscovery({
    workers: [{ url: 'http://a:1', model_name: 'm' }],
    health: { intervalMs: 100, ...health },
    clock,
    random: () => 0.5,
    prober: async (_worker, { signal }) => {
      signal.addEventListener('abort', () => {
        probe.aborted += 1
      })
      if (probe.answer === 'throws') throw new Error('refused')
      if (probe.answer === 'never') await new Promise(() => {})
      return probe.answer === 'well'
    },
  })
  const changes: string[] = []
  const watching = (async () => {
    for await (const change of discovery.watch()) {
      changes.push(change.type === 'entryRemoved' ? `${change.type} ${change.reason}` : change.type)
    }
  })()
  return {
    clock,
    changes,
    probe,
    advance: (ms: number) => clock.advanceAsync(ms),
    close: async () => {
      await discovery.close()
      await watching
    },
  }
}
