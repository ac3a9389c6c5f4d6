import { afterEach, describe, expect, test } from 'vitest'
import { EmbeddedDiscovery } from '../embedded/embedded-discovery.js'
import type { FleetChange, FleetEntry } from '../ports/discovery.js'
import type { Logger } from '../ports/logger.js'
import { seededRandom } from '../ports/random.js'
import { parseWorkerRecord, type WorkerRecord } from '../records/worker-record.js'
import { VirtualClock } from '../virtual-clock.js'
import type { AddressProber } from './address-probe.js'
import { CheckedDiscovery, type CheckedDiscoveryOptions } from './checked-discovery.js'

const record = (id: string, more: Record<string, unknown> = {}) =>
  parseWorkerRecord({ worker_id: id, url: `http://${id}`, model_name: 'm', ...more })

const kv = (canary: number[], digest = 'd') => ({
  ...{ engine_block_size: 16, index_block_size: 64, tokenizer: 't', tokenizer_digest: digest },
  tokenizer_canary: canary,
})

class Registry extends EmbeddedDiscovery {
  isLive = true
}

/** A checked registry, what its watcher sees, and what it says. */
class Rig {
  readonly clock = new VirtualClock()
  readonly registry = new Registry()
  readonly lines: string[] = []
  readonly known = new Map<string, WorkerRecord>()
  readonly down = new Set<string>()
  readonly probed: string[] = []
  readonly checked: CheckedDiscovery
  readonly #watching: Promise<void>

  constructor(options: Partial<CheckedDiscoveryOptions> = {}) {
    const say = (fields: Readonly<Record<string, unknown>>, message: string) => {
      this.lines.push([fields.workerId, message, fields.reason].filter(Boolean).join(': '))
    }
    const logger: Logger = { debug: () => {}, info: say, warn: say, error: say }
    const prober: AddressProber = async ({ worker_id: id }) => {
      this.probed.push(id)
      return this.down.has(id)
        ? { code: 'address_refused', message: `${id} refuses`, effect: 'unroutable' }
        : undefined
    }
    const ports = { source: this.registry, prober, clock: this.clock, random: seededRandom(1), logger }
    this.checked = new CheckedDiscovery({ ...ports, ...options })
    this.#watching = this.#watch()
  }

  async #watch(): Promise<void> {
    for await (const change of this.checked.watch()) {
      if (change.type === 'snapshot') this.known.clear()
      const entries = change.type === 'snapshot' ? change.entries : []
      for (const entry of change.type === 'entryPut' ? [change.entry] : entries) {
        if (entry.kind === 'worker') this.known.set(entry.record.worker_id, entry.record)
      }
      if (change.type === 'entryRemoved') this.known.delete(change.id)
    }
  }

  get pool(): string {
    return [...this.known.values()].map(({ worker_id: id, status }) => `${id} ${status}`).join(', ')
  }

  problemsOf(id: string): string[] {
    const problems = (this.known.get(id)?.problems ?? []) as { code: string }[]
    return problems.map(({ code }) => code)
  }

  async close(): Promise<void> {
    await this.checked.close()
    await this.#watching
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve))
}

let rig: Rig
afterEach(() => rig.close())

async function registered(...records: WorkerRecord[]) {
  const registrations = []
  for (const each of records)
    registrations.push(await rig.registry.register({ kind: 'worker', record: each }))
  await settled()
  return registrations
}

describe('settings', () => {
  test('a worker that agrees, or says nothing, comes in as it is', async () => {
    rig = new Rig({
      settingsFor: () => ({ tokenizer_digest: 'd', kv_block_size: 16, request_transport: 'http' }),
    })
    await registered(record('a', { kv: kv([1]) }), record('b'))
    expect(rig.pool).toBe('a active, b active')
    expect(rig.known.get('a')).toEqual(record('a', { kv: kv([1]) }))
    expect(rig.lines).toEqual([])
  })

  test('a worker whose tokenizer or block size differs is turned away, and named with the reason', async () => {
    rig = new Rig({ settingsFor: () => ({ tokenizer_digest: 'd', kv_block_size: 16 }) })
    const [first] = await registered(
      record('a', { kv: kv([1], 'other') }),
      record('b', { kv_block_size: 64 }),
      record('c', { kv: kv([1]) }),
    )
    expect(rig.pool).toBe('c active')
    expect(rig.checked.refused()).toMatchObject([
      { workerId: 'a', setting: 'tokenizer_digest', count: 1 },
      { workerId: 'b', setting: 'kv_block_size', count: 1 },
    ])
    expect(rig.lines).toEqual([
      'a: a worker was turned away: it disagrees with this server: setting \'tokenizer_digest\' differs: the server has "d" (--model), the worker "other" (--model-folder); the cache could not be followed; give both the folder of the same tokenizer',
      "b: a worker was turned away: it disagrees with this server: setting 'kv_block_size' differs: the server has 16 (--kv-block-size), the worker 64 (--block-size); give the engine the block size of the fleet, or take the flag away from the server",
    ])
    await first?.update(record('a', { kv: kv([1]) }))
    await settled()
    expect(rig.pool).toBe('c active, a active')
    expect(rig.checked.refused()).toMatchObject([{ workerId: 'b' }])
  })

  test('what only costs is a problem of a listed worker, and what cannot be reached gets no requests', async () => {
    rig = new Rig({ settingsFor: () => ({ kv_event_transport: 'nats', request_transport: 'http' }) })
    const ext = { settings: { kv_event_transport: 'zmq' } }
    const [first] = await registered(record('a', { ext }), record('b', { request_transport: 'nats' }))
    expect(rig.pool).toBe('a active, b dead')
    expect(rig.problemsOf('a')).toEqual(['kv_event_transport'])
    expect(rig.problemsOf('b')).toEqual(['request_transport'])
    expect(rig.lines).toEqual([
      'a: something is wrong with a worker: setting \'kv_event_transport\' differs: the server has "nats" (--kv-event-transport), the worker "zmq" (--kv-event-transport); the server does not see the cache of this worker; give both the same value',
      'b: something is wrong with a worker: setting \'request_transport\' differs: the server has "http" (--request-transport), the worker "nats" (--request-transport); requests cannot reach the worker; give both the same value',
    ])
    await first?.drain()
    await settled()
    expect(rig.pool).toBe('a draining, b dead')
    // Said once, however often the record is written.
    expect(rig.lines).toHaveLength(2)
  })

  test('one whom the server turns away during its life leaves the pool', async () => {
    rig = new Rig({ settingsFor: () => ({ tokenizer_digest: 'd' }) })
    const [first] = await registered(record('a', { kv: kv([1]) }))
    await first?.update(record('a', { kv: kv([1], 'other') }))
    await settled()
    expect(rig.pool).toBe('')
    expect(rig.checked.refused()).toHaveLength(1)
    await first?.deregister()
    await settled()
    expect(rig.checked.refused()).toEqual([])
  })
})

describe('workers of one model', () => {
  test('must make the same of the canary text, until the last of them is gone', async () => {
    rig = new Rig()
    const [first] = await registered(
      record('a', { kv: kv([1, 2]) }),
      record('b', { kv: kv([1, 3]) }),
      record('c', { kv: kv([1, 2]) }),
      record('d', { kv: kv([7]), model_name: 'other' }),
      record('e'),
    )
    expect(rig.pool).toBe('a active, c active, d active, e active')
    expect(rig.checked.refused()).toMatchObject([{ workerId: 'b', setting: 'tokenizer_canary' }])
    expect(rig.lines[0]).toMatch(/makes \[1, 3\] of the canary text, they \[1, 2\]; give all of them/)
    await first?.deregister()
    await settled()
    expect(rig.pool).toBe('c active, d active, e active')
  })

  test('forgotten with the last, those turned away come in', async () => {
    rig = new Rig()
    const [first] = await registered(record('a', { kv: kv([1]) }), record('b', { kv: kv([2]) }))
    await first?.deregister()
    await settled()
    expect(rig.pool).toBe('b active')
    expect(rig.checked.refused()).toEqual([])
  })

  test('are told apart by their prefill and decode protocol', async () => {
    rig = new Rig()
    await registered(
      record('p', { disagg_mode: 'prefill', disagg_meta: { protocol: 'mooncake' } }),
      record('d', { disagg_mode: 'decode', disagg_meta: { protocol: 'nixl' } }),
      record('m', { disagg_meta: { protocol: 'none' } }),
    )
    expect([rig.problemsOf('p'), rig.problemsOf('d'), rig.problemsOf('m')]).toEqual([[], ['pd_protocol'], []])
    expect(rig.lines).toEqual([
      'd: something is wrong with a worker: among the workers of model \'m\' setting \'pd_protocol\' differs: the first has "mooncake", this one "nixl" (--kv-transfer-config); prefill and decode workers of a model pair up only with one protocol; give all of them the same',
    ])
  })
})

describe('addresses', () => {
  test('a worker that cannot be reached is listed, out of rotation, until it can', async () => {
    rig = new Rig()
    rig.down.add('a')
    await registered(record('a'), record('b'))
    expect(rig.pool).toBe('a dead, b active')
    expect(rig.problemsOf('a')).toEqual(['address_refused'])
    rig.down.clear()
    await rig.clock.advanceAsync(1_000)
    await settled()
    expect(rig.pool).toBe('a active, b active')
    expect(rig.problemsOf('a')).toEqual([])
    expect(rig.lines).toEqual([
      'a: something is wrong with a worker: a refuses',
      'a: a worker can be reached again',
    ])
  })

  test('one that the registry vouches for is asked once', async () => {
    rig = new Rig()
    const [first] = await registered(record('a'))
    await rig.clock.advanceAsync(600_000)
    expect(rig.probed).toEqual(['a'])
    await first?.update(record('a', { url: 'http://elsewhere' }))
    await settled()
    expect(rig.probed).toEqual(['a', 'a'])
  })

  test('no answer in time is a problem too', async () => {
    rig = new Rig({ prober: () => new Promise(() => {}), probe: { timeoutMs: 100 } })
    await registered(record('a'))
    expect(rig.pool).toBe('a active')
    await rig.clock.advanceAsync(100)
    await settled()
    expect(rig.problemsOf('a')).toEqual(['address_timeout'])
  })
})

describe('a registry that is away', () => {
  test('keeps its workers, marked, and those that die meanwhile leave rotation by their silence', async () => {
    rig = new Rig({ probe: { intervalMs: 1_000, retryFirstMs: 100 } })
    await registered(record('a'), record('b'))
    await rig.clock.advanceAsync(1_000)
    rig.registry.isLive = false
    await rig.clock.advanceAsync(1_000)
    await settled()
    expect(rig.pool).toBe('a active, b active')
    expect([rig.problemsOf('a'), rig.problemsOf('b')]).toEqual([['unverified'], ['unverified']])
    rig.down.add('b')
    await rig.clock.advanceAsync(1_100)
    await settled()
    await rig.clock.advanceAsync(200)
    await settled()
    expect(rig.pool).toBe('a active, b dead')
    rig.registry.isLive = true
    await rig.clock.advanceAsync(1_000)
    await settled()
    // Its key outlived it: it is out all the same.
    expect(rig.pool).toBe('a active, b dead')
    expect([rig.problemsOf('a'), rig.problemsOf('b')]).toEqual([[], ['address_refused']])
  })

  test('is noticed also when it went before it was ever looked after', async () => {
    rig = new Rig()
    rig.registry.isLive = false
    await registered(record('a'))
    await rig.clock.advanceAsync(1_000)
    await settled()
    expect(rig.problemsOf('a')).toEqual(['unverified'])
    await rig.registry.close()
  })

  test('back again, its word alone does not count before a lease has passed', async () => {
    rig = new Rig({ probe: { intervalMs: 1_000 }, verifyForMs: 10_000 })
    await registered(record('a'))
    await rig.clock.advanceAsync(1_000)
    rig.registry.isLive = false
    await rig.clock.advanceAsync(1_000)
    await settled()
    rig.registry.isLive = true
    await rig.clock.advanceAsync(1_000)
    const before = rig.probed.length
    for (let second = 0; second < 5; second++) {
      await rig.clock.advanceAsync(1_000)
      await settled()
    }
    expect(rig.probed.length).toBeGreaterThan(before + 2)
    for (let second = 0; second < 10; second++) {
      await rig.clock.advanceAsync(1_000)
      await settled()
    }
    const after = rig.probed.length
    await rig.clock.advanceAsync(60_000)
    expect(rig.probed.length).toBe(after)
  })
})

test('a snapshot of the registry takes away whom it does not name, refused ones and servers too', async () => {
  const entry = (worker: WorkerRecord): FleetEntry => ({ kind: 'worker', record: worker })
  const server: FleetEntry = {
    kind: 'server',
    record: { server_id: 's', url: 'http://s', version: '1', settings: {} },
  }
  let next = (_change: FleetChange | undefined) => {}
  const source = {
    kind: 'fake',
    register: () => Promise.reject(new Error('nobody registers here')),
    watch: async function* () {
      while (true) {
        const change = await new Promise<FleetChange | undefined>((resolve) => {
          next = resolve
        })
        if (!change) return
        yield change
      }
    },
    close: async () => next(undefined),
  }
  rig = new Rig({ source, settingsFor: () => ({ tokenizer_digest: 'd' }) })
  await settled()
  const others = [entry(record('b', { kv: kv([1], 'x') })), server]
  next({ type: 'snapshot', entries: [entry(record('a')), ...others] })
  await settled()
  expect(rig.pool).toBe('a active')
  expect(rig.checked.refused()).toHaveLength(1)
  const servers: number[] = []
  for await (const change of rig.checked.watch()) {
    if (change.type === 'snapshot')
      servers.push(change.entries.filter(({ kind }) => kind === 'server').length)
    break
  }
  next({ type: 'snapshot', entries: [entry(record('c'))] })
  await settled()
  expect(rig.pool).toBe('c active')
  expect(rig.checked.refused()).toEqual([])
  expect(servers).toEqual([1])
  for await (const change of rig.checked.watch()) {
    if (change.type === 'snapshot') expect(change.entries).toHaveLength(1)
    break
  }
})
