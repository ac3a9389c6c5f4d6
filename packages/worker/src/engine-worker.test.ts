import {
  EmbeddedDiscovery,
  type FleetEntry,
  type Logger,
  parseWorkerRecord,
  type ServerRecord,
  seededRandom,
  sleep,
  VirtualClock,
} from '@infera/fleet'
import { afterEach, describe, expect, test } from 'vitest'
import { EngineWorker } from './engine-worker.js'
import type { EngineWorkerOptions } from './engine-worker-options.js'
import { FleetDisagreementError, InvalidWorkerOptionsError } from './errors.js'
import type { WorkerPlane } from './worker-plane.js'

const record = parseWorkerRecord({
  worker_id: 'h:1',
  url: 'http://h:1',
  model_name: 'm',
  engine: 'vllm',
  kv_block_size: 16,
})

const server = (id: string, settings: ServerRecord['settings'] = {}): FleetEntry => ({
  kind: 'server',
  record: { server_id: id, url: `http://${id}`, version: '1', settings },
})

/** A registry that says what is done to it, before its own watchers know. */
class Registry extends EmbeddedDiscovery {
  readonly events: string[]
  constructor(events: string[]) {
    super()
    this.events = events
  }
  override async register(entry: FleetEntry, options?: { signal?: AbortSignal }) {
    const registration = await super.register(entry, options)
    if (entry.kind === 'server') return registration
    this.events.push('registered')
    const { events } = this
    return {
      kind: registration.kind,
      id: registration.id,
      lost: registration.lost,
      expire: () => registration.expire(),
      update: async (next: FleetEntry['record']) => {
        events.push('updated')
        await registration.update(next)
      },
      drain: async () => {
        events.push('draining')
        await registration.drain()
      },
      deregister: async () => {
        events.push('deregistered')
        await registration.deregister()
      },
    }
  }
}

class Rig {
  readonly clock = new VirtualClock()
  readonly events: string[] = []
  readonly lines: string[] = []
  readonly registry = new Registry(this.events)
  readonly logger: Logger

  constructor() {
    const say = (fields: Readonly<Record<string, unknown>>, message: string) => {
      this.lines.push([fields.serverId, message, fields.reason].filter(Boolean).join(': '))
    }
    this.logger = { debug: () => {}, info: () => {}, warn: say, error: say }
  }

  worker(more: Partial<EngineWorkerOptions> = {}): EngineWorker {
    const { clock, logger, registry: discovery } = this
    return new EngineWorker({ record, discovery, clock, logger, ...more })
  }

  plane(name: string, more: Partial<WorkerPlane> = {}): WorkerPlane {
    const note = (what: string) => async () => {
      this.events.push(`${name} ${what}`)
    }
    return {
      name,
      ready: async () => {
        this.events.push(`${name} ready`)
        return { ext: { [name]: true, settings: { [name]: 1 } } }
      },
      drain: note('drained'),
      deregister: note('gone'),
      close: note('closed'),
      ...more,
    }
  }

  async announced(): Promise<FleetEntry[]> {
    for await (const change of this.registry.watch()) {
      if (change.type === 'snapshot') return change.entries.filter(({ kind }) => kind === 'worker')
    }
    return []
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve))
}

let rig = new Rig()
const workers: EngineWorker[] = []
afterEach(async () => {
  for (const worker of workers.splice(0)) await worker.destroy()
  await rig.registry.close()
  rig = new Rig()
})
const start = (...args: Parameters<Rig['worker']>) => {
  const worker = rig.worker(...args)
  workers.push(worker)
  return worker
}

describe('from start to end', () => {
  test('planes are ready before it is announced, and it is out of rotation before it drains and leaves', async () => {
    const worker = start({ planes: [rig.plane('a'), rig.plane('b')] })
    await worker.start()
    await worker.close()
    expect(rig.events).toEqual([
      ...['a ready', 'b ready', 'registered', 'draining', 'a drained', 'b drained', 'deregistered'],
      ...['a gone', 'b gone', 'a closed', 'b closed'],
    ])
    await worker.close()
    await worker.destroy()
    expect(rig.events).toHaveLength(11)
  })

  test('the record says what the planes and the settings say', async () => {
    const settings = { model_digest: 'x', a: 0 }
    const worker = start({ planes: [rig.plane('a'), rig.plane('b')], settings })
    await worker.start()
    expect(worker.record.ext).toEqual({ a: true, b: true, settings: { model_digest: 'x', a: 1, b: 1 } })
    expect(await rig.announced()).toEqual([{ kind: 'worker', record: worker.record }])
  })

  test('an engine that runs requests is waited for, and for those that are on their way', async () => {
    let running = 2
    const worker = start({ runningRequests: () => running, settleMs: 100 })
    await worker.start()
    const closing = worker.close().then(() => rig.events.push('closed'))
    await settled()
    await rig.clock.advanceAsync(1_000)
    expect(rig.events).toEqual(['registered', 'draining'])
    running = 0
    await rig.clock.advanceAsync(60)
    running = 1
    await rig.clock.advanceAsync(60)
    running = 0
    await rig.clock.advanceAsync(80)
    expect(rig.events).toEqual(['registered', 'draining'])
    await rig.clock.advanceAsync(60)
    await closing
    expect(rig.events).toEqual(['registered', 'draining', 'deregistered', 'closed'])
  })

  test('one that never ends is waited for as long as was said', async () => {
    const worker = start({ runningRequests: () => 1, drainTimeoutMs: 500 })
    await worker.start()
    const closing = worker.close()
    await settled()
    await rig.clock.advanceAsync(500)
    await closing
    expect(rig.lines).toEqual(['requests still run: they are broken off'])
  })

  test('a plane that fails at its end holds nobody up', async () => {
    const broken = rig.plane('broken', {
      drain: () => Promise.reject(new Error('no')),
      close: () => Promise.reject(new Error('no')),
    })
    const worker = start({ planes: [broken, rig.plane('whole')] })
    await worker.start()
    await worker.close()
    expect(rig.events.at(-1)).toBe('whole closed')
    expect(rig.lines).toEqual(Array(2).fill('a plane has failed at its end: Error: no'))
  })

  test('a plane that is late does not keep it from being announced, and is announced when it is there', async () => {
    let arrive = () => {}
    const late = rig.plane('late', {
      ready: () =>
        new Promise((resolve) => {
          arrive = () => resolve({ request_transport: 'nats' })
        }),
    })
    const worker = start({ planes: [late], planeTimeoutMs: 100 })
    const starting = worker.start()
    await settled()
    await rig.clock.advanceAsync(100)
    await starting
    expect(worker.record.request_transport).toBe('http')
    arrive()
    await settled()
    expect(await rig.announced()).toMatchObject([{ record: { request_transport: 'nats' } }])
    expect(rig.lines).toHaveLength(1)
  })

  test('closed before it was announced, it announces nothing', async () => {
    const worker = start({ planes: [rig.plane('stuck', { ready: () => new Promise(() => {}) })] })
    const starting = worker.start()
    starting.catch(() => {})
    const closing = worker.close()
    await settled()
    await rig.clock.advanceAsync(30_000)
    await closing
    await expect(starting).rejects.toThrow('closed before it was announced')
    expect(rig.events).toEqual(['stuck drained', 'stuck gone', 'stuck closed'])
  })

  test('a registry that does not say who is there is not waited for longer than was said', async () => {
    const silent = Object.assign(rig.registry, {
      watch: async function* ({ signal }: { signal?: AbortSignal } = {}) {
        await sleep(rig.clock, 1_000_000, signal).catch(() => {})
      },
    })
    const worker = start({ discovery: silent, compareTimeoutMs: 200 })
    const starting = worker.start()
    await settled()
    expect(rig.events).toEqual([])
    await rig.clock.advanceAsync(200)
    await starting
    expect(rig.events).toEqual(['registered'])
  })

  test('another process that takes its id ends it', async () => {
    const worker = start()
    await worker.start()
    await rig.registry.register({ kind: 'worker', record: { ...record, note: 'other' } })
    await expect(worker.ended).rejects.toMatchObject({ code: 'INFERA_WORKER_ID_TAKEN' })
    expect(await rig.announced()).toMatchObject([{ record: { note: 'other' } }])
  })

  test('options that cannot be used are named', () => {
    expect(() => start({ drainTimeoutMs: -1 })).toThrow(InvalidWorkerOptionsError)
    expect(() => start({ drainTimeoutMs: -1 })).toThrow(/EngineWorker: drainTimeoutMs/)
    expect(() => start({ discovery: undefined as never })).toThrow(/discovery: must be a Discovery/)
  })
})

describe('settings', () => {
  test.each([
    [
      { request_transport: 'http' },
      { request_transport: 'nats' as const },
      'setting \'request_transport\' differs: the server has "http" (--request-transport), the worker "nats" (--request-transport); requests cannot reach the worker; give both the same value',
    ],
    [
      { kv_event_transport: 'nats' },
      { ext: { settings: { kv_event_transport: 'zmq' } } },
      'setting \'kv_event_transport\' differs: the server has "nats" (--kv-event-transport), the worker "zmq" (--kv-event-transport); the server does not see the cache of this worker; give both the same value',
    ],
    [
      { kv_block_size: 64 },
      {},
      "setting 'kv_block_size' differs: the server has 64 (--kv-block-size), the worker 16 (--block-size); give the engine the block size of the fleet, or take the flag away from the server",
    ],
    [
      { nats_req_max_pending: 8 },
      { ext: { settings: { nats_req_max_pending: 0 } } },
      "setting 'nats_req_max_pending' differs: the server has 8 (--nats-req-max-pending), the worker 0 (--nats-req-max-pending); requests are throttled by one side only, and front ends of Infera 0.1 lose replies; give both the same value",
    ],
    [
      { 'tokenizer_digest/m': 'a', 'tokenizer_digest/other': 'b' },
      { ext: { settings: { tokenizer_digest: 'b' } } },
      'setting \'tokenizer_digest\' differs: the server has "a" (--model), the worker "b" (--model-folder); the cache could not be followed; give both the folder of the same tokenizer',
    ],
    [
      { model_digest: 'a' },
      { ext: { settings: { model_digest: 'b' } } },
      'setting \'model_digest\' differs: the server has "a", the worker "b"; the workers of a model must serve the same weights; give it another name, or the same files',
    ],
    [
      { pd_protocol: 'mooncake' },
      { disagg_mode: 'decode' as const, disagg_meta: { protocol: 'nixl' } },
      'setting \'pd_protocol\' differs: the server has "mooncake", the worker "nixl" (--kv-transfer-config); prefill and decode workers of a model pair up only with one protocol; give all of them the same',
    ],
  ])(
    'a server with %j refuses to be joined by a strict worker with %j, in one line',
    async (theirs, ours, line) => {
      await rig.registry.register(server('s', theirs))
      const worker = start({ record: { ...record, ...ours } })
      const error = await worker.start().catch((reason: unknown) => reason)
      expect(error).toBeInstanceOf(FleetDisagreementError)
      expect((error as Error).message).toBe(`this worker and server 's' disagree: ${line}`)
      expect(rig.lines).toEqual([`s: this worker disagrees with a server: ${line}`])
      expect(rig.events).toEqual([])
    },
  )

  test('a worker that is not strict says so, once, and goes on', async () => {
    await rig.registry.register(server('s', { kv_block_size: 64 }))
    const worker = start({ strictFleet: false })
    await worker.start()
    await rig.registry.register(server('other'))
    await rig.registry.register(server('s', { kv_block_size: 64 }))
    await settled()
    expect(rig.events).toEqual(['registered'])
    expect(rig.lines).toHaveLength(1)
  })

  test('a server that comes later and differs ends a strict worker, which drains first', async () => {
    const worker = start({ planes: [rig.plane('a')] })
    await worker.start()
    await rig.registry.register(server('s', { kv_block_size: 16 }))
    await settled()
    expect(rig.events).toEqual(['a ready', 'registered'])
    await rig.registry.register(server('late', { kv_block_size: 64 }))
    await expect(worker.ended).rejects.toMatchObject({ code: 'INFERA_WORKER_DISAGREES', serverId: 'late' })
    expect(rig.events.slice(2)).toEqual(['draining', 'a drained', 'deregistered', 'a gone', 'a closed'])
  })

  test('whatever servers come, change and go, exactly the new disagreements are told', async () => {
    const random = seededRandom(7)
    const worker = start({ strictFleet: false })
    await worker.start()
    const sizes = new Map<string, number>()
    const expected: string[] = []
    const told = new Map<string, number>()
    const registrations = new Map<string, Awaited<ReturnType<Registry['register']>>>()
    for (let step = 0; step < 200; step++) {
      const id = `s${Math.floor(random() * 4)}`
      if (random() < 0.3) {
        await registrations.get(id)?.deregister()
        sizes.delete(id)
        told.delete(id)
      } else {
        const size = [16, 32, 64][Math.floor(random() * 3)] as number
        registrations.set(id, await rig.registry.register(server(id, { kv_block_size: size })))
        sizes.set(id, size)
        if (size !== 16 && told.get(id) !== size) expected.push(`${id} ${size}`)
        told.set(id, size)
      }
      await settled()
    }
    expect(rig.lines.map((line) => `${line.slice(0, 2)} ${/the server has (\d+)/.exec(line)?.[1]}`)).toEqual(
      expected,
    )
    expect(expected.length).toBeGreaterThan(20)
  })
})
