// What a fleet of 1,000 workers in one etcd costs: each record under a lease of its own, a tenth of them replaced every minute. The
// lag from a change of a record to its watcher is compared with a bare put and watch of etcd's own client in the same run.
import { setMaxListeners } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { type FleetEntry, parseWorkerRecord, type Registration } from '@infera/fleet'
import { EtcdDiscovery } from '@infera/fleet/etcd'
import { Etcd3 } from 'etcd3'
import { EtcdServer, etcdMissing } from '../../packages/fleet/test/support/etcd-server.js'
import { runSuite } from '../lib/suite.js'

if (etcdMissing) {
  console.error(`this suite needs a real etcd: ${etcdMissing}`)
  process.exit(1)
}
const isQuick = process.argv.includes('--quick')
const holders = isQuick ? 200 : 1_000
const churnPerMinute = holders / 10
const samples = isQuick ? 100 : 300
const idleMs = isQuick ? 2_000 : 5_000
setMaxListeners(0)

const etcd = await EtcdServer.start()
const owner = new EtcdDiscovery({ endpoints: [etcd.url] })
const watcher = new EtcdDiscovery({ endpoints: [etcd.url] })
const bare = new Etcd3({ hosts: [etcd.url] })

const entryOf = (id: string, turn = 0): FleetEntry => ({
  kind: 'worker',
  record: parseWorkerRecord({
    worker_id: id,
    url: `http://${id}`,
    model_name: 'model',
    engine: 'vllm',
    kv_block_size: 16,
    turn,
  }),
})

/** Who waits for which change. */
const awaited = new Map<string, () => void>()
const seen = (key: string) => {
  awaited.get(key)?.()
  awaited.delete(key)
}
void (async () => {
  for await (const change of watcher.watch()) {
    if (change.type !== 'entryPut' || change.entry.kind !== 'worker') continue
    seen(`${change.entry.record.worker_id} ${change.entry.record.turn}`)
  }
})()
const bareWatch = await bare.watch().prefix('/bare/').create()
bareWatch.on('put', ({ value }) => seen(`bare ${value.toString()}`))

/** Milliseconds from the call until the watcher knows. */
async function lagOf(key: string, change: () => Promise<unknown>): Promise<number> {
  const known = new Promise<number>((resolve) => awaited.set(key, () => resolve(performance.now())))
  const startedAt = performance.now()
  await change()
  return (await known) - startedAt
}

function p99(values: number[]): number {
  return values.sort((a, b) => a - b)[Math.ceil(values.length * 0.99) - 1] as number
}

const emptyBytes = heapBytes()
const registrations: Registration[] = []
for (let from = 0; from < holders; from += 100) {
  const some = Array.from({ length: Math.min(100, holders - from) }, (_, index) =>
    owner.register(entryOf(`w${from + index}:1`)),
  )
  registrations.push(...(await Promise.all(some)))
}

let isOver = false
let next = holders
const churning = (async () => {
  for (let at = 0; !isOver; at = (at + 1) % holders) {
    await registrations[at]?.deregister()
    registrations[at] = await owner.register(entryOf(`w${next++}:1`))
    await pause(60_000 / churnPerMinute)
  }
})()

const measured = await owner.register(entryOf('measured:1'))
let turn = 0

await runSuite('fleet', [
  {
    name: 'bare put and watch',
    metric: 'lag p99',
    unit: 'ms',
    run: async () => {
      const lags: number[] = []
      for (let sample = 0; sample < samples; sample++) {
        const value = String(++turn)
        lags.push(await lagOf(`bare ${value}`, async () => bare.put('/bare/key').value(value)))
      }
      return p99(lags)
    },
  },
  {
    name: `a record among ${holders}`,
    metric: 'lag p99',
    unit: 'ms',
    baseline: 'bare put and watch',
    run: async () => {
      const lags: number[] = []
      for (let sample = 0; sample < samples; sample++) {
        const now = ++turn
        lags.push(await lagOf(`measured:1 ${now}`, () => measured.update(entryOf('measured:1', now).record)))
      }
      return p99(lags)
    },
    limit: { value: 10, what: 'times the bare lag, at most' },
  },
  {
    name: `${holders} records held`,
    metric: 'CPU of owner and watcher',
    unit: 'ms/s',
    run: async () => {
      const before = process.cpuUsage()
      const startedAt = performance.now()
      await pause(idleMs)
      const { user, system } = process.cpuUsage(before)
      return (user + system) / 1000 / ((performance.now() - startedAt) / 1000)
    },
    limit: { value: 1000, what: 'one core' },
  },
  {
    name: 'memory',
    metric: 'heap for each record, owner and watcher together',
    unit: 'KB',
    run: () => (heapBytes() - emptyBytes) / holders / 1000,
  },
])

isOver = true
await churning
await bareWatch.cancel()
bare.close()
await Promise.all([owner.close(), watcher.close()])
await etcd[Symbol.asyncDispose]()

function heapBytes(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}
