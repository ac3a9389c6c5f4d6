import {
  EmbeddedDiscovery,
  type FleetEntry,
  parseWorkerRecord,
  type Registration,
  type ServerRecord,
  VirtualClock,
} from '@infera/fleet'
import { afterAll, afterEach, expect, test } from 'vitest'
import { EngineWorker } from './engine-worker.js'
import type { EngineWorkerOptions } from './engine-worker-options.js'
import type { RecordParts, WorkerPlane } from './worker-plane.js'

const record = parseWorkerRecord({
  worker_id: 'h:1',
  url: 'http://h:1',
  model_name: 'm',
  engine: 'vllm',
  kv_block_size: 16,
})

const server = (settings: ServerRecord['settings']): FleetEntry => ({
  kind: 'server',
  record: { server_id: 's', url: 'http://s', version: '1', settings },
})

async function settled(): Promise<void> {
  for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve))
}

function gate<T = void>() {
  let open: (value: T) => void = () => {}
  const passed = new Promise<T>((resolve) => {
    open = resolve
  })
  return { open, passed }
}

/** Lets a registration through only when its gate opens, whatever the signal says: the write is on its way. */
class SlowRegistry extends EmbeddedDiscovery {
  readonly gate = gate()
  isAsked = false
  override async register(entry: FleetEntry) {
    if (entry.kind === 'worker') {
      this.isAsked = true
      await this.gate.passed
    }
    return super.register(entry)
  }
}

let clock = new VirtualClock()
let registry = new EmbeddedDiscovery()
let events: string[] = []
const made: EngineWorker[] = []
const rejections: unknown[] = []
const onRejection = (reason: unknown) => rejections.push(reason)
process.on('unhandledRejection', onRejection)
afterAll(() => void process.off('unhandledRejection', onRejection))
afterEach(async () => {
  for (const worker of made.splice(0)) void worker.destroy().catch(() => {})
  await registry.close()
  clock = new VirtualClock()
  registry = new EmbeddedDiscovery()
  events = []
  rejections.length = 0
})

const make = (more: Partial<EngineWorkerOptions> = {}) => {
  const worker = new EngineWorker({ record, discovery: registry, clock, ...more })
  made.push(worker)
  return worker
}

const plane = (more: Partial<WorkerPlane> = {}): WorkerPlane => ({
  name: 'p',
  ready: async () => ({}),
  deregister: async () => void events.push('deregister'),
  close: async () => void events.push('close'),
  ...more,
})

async function announced(of = registry): Promise<{ status: string }[]> {
  for await (const change of of.watch()) {
    if (change.type !== 'snapshot') continue
    return change.entries.flatMap((entry) => (entry.kind === 'worker' ? [entry.record] : []))
  }
  return []
}

/** A worker whose only plane is late, and that plane's end of it. */
async function withLatePlane(more: Partial<EngineWorkerOptions> = {}) {
  const late = gate<RecordParts>()
  const worker = make({ planes: [plane({ ready: () => late.passed })], planeTimeoutMs: 100, ...more })
  const starting = worker.start()
  starting.catch(() => {})
  await settled()
  await clock.advanceAsync(100)
  await settled()
  return { worker, starting, late }
}

test('a plane that gets ready during the drain does not bring the worker back into rotation', async () => {
  const { worker, late } = await withLatePlane({ runningRequests: () => 1, drainTimeoutMs: 5_000 })
  void worker.close()
  await settled()
  expect(await announced()).toMatchObject([{ status: 'draining' }])
  late.open({ ext: { nats: 'core' } })
  await settled()
  expect(await announced()).toMatchObject([{ status: 'draining' }])
  await clock.advanceAsync(5_000)
})

test('what a late plane says is compared with the servers that are there', async () => {
  await registry.register(server({ nats_req_max_pending: 8 }))
  const { worker, late } = await withLatePlane()
  late.open({ ext: { settings: { nats_req_max_pending: 0 } } })
  await settled()
  await settled()
  expect(await announced()).toEqual([])
  await expect(worker.ended).rejects.toMatchObject({ code: 'INFERA_WORKER_DISAGREES' })
})

test('a late plane of a worker that was refused leaves no rejection that nobody handles', async () => {
  await registry.register(server({ kv_block_size: 64 }))
  const { starting, late } = await withLatePlane()
  await expect(starting).rejects.toMatchObject({ code: 'INFERA_WORKER_DISAGREES' })
  late.open({})
  await settled()
  expect(rejections).toEqual([])
})

test('a server that announces itself while the worker is being registered is compared', async () => {
  const slow = new SlowRegistry()
  registry = slow
  const worker = make()
  const starting = worker.start()
  starting.catch(() => {})
  await settled()
  expect(slow.isAsked).toBe(true)
  await slow.register(server({ kv_block_size: 64 }))
  await settled()
  slow.gate.open()
  await settled()
  await settled()
  expect(await announced()).toEqual([])
  await expect(worker.ended).rejects.toMatchObject({ code: 'INFERA_WORKER_DISAGREES' })
})

test('destroyed while it is being registered, it leaves no record behind', async () => {
  const slow = new SlowRegistry()
  registry = slow
  const worker = make()
  worker.start().catch(() => {})
  await settled()
  expect(slow.isAsked).toBe(true)
  const destroyed = worker.destroy()
  await settled()
  slow.gate.open()
  await destroyed
  await settled()
  expect(await announced()).toEqual([])
})

test('destroy does not wait for the drain that is under way', async () => {
  const worker = make({ runningRequests: () => 1, drainTimeoutMs: 30_000 })
  await worker.start()
  const closing = worker.close()
  await settled()
  let isGone = false
  const destroyed = worker.destroy().then(() => {
    isGone = true
  })
  await settled()
  expect(isGone).toBe(true)
  expect(await announced()).toEqual([])
  await clock.advanceAsync(30_000)
  await Promise.all([closing, destroyed])
})

/** A registry that never says who is there. */
const silent = () =>
  Object.assign(new EmbeddedDiscovery(), {
    watch: async function* ({ signal }: { signal?: AbortSignal } = {}) {
      await new Promise((resolve) => signal?.addEventListener('abort', resolve, { once: true }))
    },
  })
test.each<[string, () => Partial<EngineWorkerOptions>]>([
  ['a plane is getting ready', () => ({ planes: [plane({ ready: () => new Promise(() => {}) })] })],
  ['the registry has not said anything', () => ({ discovery: silent() })],
])('closed while %s, it does not wait for that', async (_when, more) => {
  const worker = make(more())
  worker.start().catch(() => {})
  await settled()
  let isClosed = false
  const closing = worker.close().then(() => {
    isClosed = true
  })
  await settled()
  expect(isClosed).toBe(true)
  await clock.advanceAsync(60_000)
  await closing
})

test('whoever took its id over keeps what brokers hold of that id', async () => {
  const worker = make({ planes: [plane()] })
  await worker.start()
  await registry.register({ kind: 'worker', record })
  await expect(worker.ended).rejects.toMatchObject({ code: 'INFERA_WORKER_ID_TAKEN' })
  expect(events).toEqual(['close'])
})

const bad = () => {
  throw new Error('no')
}
test.each([
  ['the count of requests', { runningRequests: bad }],
  ['the drain of a plane', { planes: [plane({ drain: bad })] }],
  ['the end of a plane', { planes: [plane({ close: bad })] }],
])('%s that throws does not keep the record from being taken away', async (_what, more) => {
  const worker = make(more)
  await worker.start()
  await worker.close()
  expect(await announced()).toEqual([])
})

test('drained before it was started, it is not announced any more', async () => {
  const worker = make()
  await worker.drain()
  await expect(worker.start()).rejects.toThrow()
  expect(await announced()).toEqual([])
})

test('a registry that rejects the drain holds nobody up', async () => {
  const failing = Object.assign(new EmbeddedDiscovery(), {
    register: async (): Promise<Registration> => ({
      kind: 'worker',
      id: 'h:1',
      lost: new Promise(() => {}),
      update: bad,
      drain: () => Promise.reject(new Error('away')),
      deregister: () => Promise.reject(new Error('away')),
    }),
  })
  const worker = make({ discovery: failing, planes: [plane()] })
  await worker.start()
  await worker.close()
  expect(events).toEqual(['deregister', 'close'])
})
