// A discovery of your own: workers are rows of a table that is read now and then, be it a file, a database or a DNS name.
import { setTimeout as sleep } from 'node:timers/promises'
import { type Discovery, DiscoveryError, type FleetChange, type WorkerRecord } from '@infera/fleet'
import { startFleet } from './fleet.js'

class TableDiscovery implements Discovery {
  readonly kind = 'table'
  readonly #readTable: () => Promise<readonly WorkerRecord[]>
  readonly #closing = new AbortController()

  constructor(readTable: () => Promise<readonly WorkerRecord[]>) {
    this.#readTable = readTable
  }

  /** Each snapshot is the whole truth. What `readTable` throws may pass: the router keeps what it knows, and comes back. */
  async *watch({
    signal = this.#closing.signal,
  }: {
    signal?: AbortSignal
  } = {}): AsyncGenerator<FleetChange> {
    const ended = AbortSignal.any([signal, this.#closing.signal])
    while (!ended.aborted) {
      const records = await this.#readTable()
      yield { type: 'snapshot', entries: records.map((record) => ({ kind: 'worker', record })) }
      await sleep(20, undefined, { signal: ended }).catch(() => {}) // ends early only when the watch does
    }
  }

  async register(): Promise<never> {
    throw new DiscoveryError('INFERA_FLEET_READ_ONLY', 'workers are rows of the table; add one there')
  }

  async close(): Promise<void> {
    this.#closing.abort()
  }
}

let all: readonly WorkerRecord[] = []
let table: readonly WorkerRecord[] = []
const { router, close } = await startFleet(2, {
  discover(records) {
    all = records
    table = all.slice(0, 1)
    return new TableDiscovery(async () => table)
  },
})
const ids = () => router.workers().map(({ worker_id }) => worker_id)
console.log('at the start:', ...ids())

const joined = new Promise<void>((resolve) => router.events.once('workerJoined', () => resolve()))
table = all
await joined
console.log('with another row:', ...ids())

const left = new Promise<string>((resolve) => router.events.once('workerLeft', (e) => resolve(e.workerId)))
table = all.slice(1)
console.log(`without its row ${await left} left:`, ...ids())
await close()
