import { afterEach, describe, expect, test } from 'vitest'
import type { EtcdDiscovery } from '../../src/etcd/index.js'
import { type Random, type Registration, seededRandom } from '../../src/index.js'
import { EtcdServer, etcdMissing } from '../support/etcd-server.js'
import { Follower } from '../support/follower.js'
import { TcpProxy } from '../support/tcp-proxy.js'
import { discoveryOn, worker } from './fleet.js'

const ids = Array.from({ length: 50 }, (_, index) => `w${index}:1`)
const steps = 300

/** A process of workers: what it announces goes over a wire of its own. */
interface Process {
  readonly proxy: TcpProxy
  readonly discovery: EtcdDiscovery
}

/** A worker as it should stand in the registry, once nothing is under way for it any more. */
interface Live {
  readonly process: Process
  registration: Registration | undefined
  note: number
  status: 'active' | 'draining'
}

/** 50 workers that come, change, move, leave and die while etcd and every wire fail; what should be true when all is well again. */
class Churn {
  readonly live = new Map<string, Live>()
  readonly #etcd: EtcdServer
  readonly #random: Random
  readonly #processes: Process[] = []
  readonly #dead: Process[] = []
  readonly #watchers: Process[] = []
  /** What is under way, by id. */
  readonly #busy = new Map<string, { readonly process: Process; readonly work: Promise<unknown> }>()

  constructor(etcd: EtcdServer, random: Random) {
    this.#etcd = etcd
    this.#random = random
  }

  /** A discovery on a wire of its own. */
  async begin(group: 'owner' | 'watcher'): Promise<Process> {
    const proxy = await TcpProxy.start(this.#etcd.port)
    const discovery = discoveryOn(`http://127.0.0.1:${proxy.port}`, {
      leaseTtlSeconds: 1,
      heartbeatMs: 50,
      requestTimeoutMs: 400,
      livenessMs: 1_000,
      deregisterTimeoutMs: 60_000,
    })
    const process = { proxy, discovery }
    this.#groupOf(group).push(process)
    return process
  }

  async step(at: number): Promise<void> {
    const id = this.#any(ids)
    const known = this.live.get(id)
    const what = this.#random()
    if (what < 0.08) this.#any([...this.#processes, ...this.#watchers]).proxy.cut()
    else if (what < 0.12) this.#any([...this.#processes, ...this.#watchers]).proxy.hold()
    else if (what < 0.3) this.#mend(this.#any([...this.#processes, ...this.#watchers]))
    else if (what < 0.31) await this.#restart()
    else if (what < 0.32) await this.#compact()
    else if (what < 0.34) await this.#revokeAny()
    else if (what < 0.35) await this.#crash(at)
    else if (this.#busy.has(id)) return
    else if (!known || what < 0.5) this.#register(id, at)
    else if (what < 0.65) {
      this.live.delete(id)
      this.#occupy(id, known.process, known.registration?.deregister())
    } else if (what < 0.75) {
      known.status = 'draining'
      this.#occupy(id, known.process, known.registration?.drain())
    } else {
      known.note = at
      known.status = 'active'
      this.#occupy(id, known.process, known.registration?.update(worker(id, { note: at }).record))
    }
    await new Promise((resolve) => setImmediate(resolve))
  }

  /** Ends every trouble, and waits for what is under way. */
  async settle(): Promise<void> {
    for (const process of [...this.#processes, ...this.#watchers]) this.#mend(process)
    await Promise.all([...this.#busy.values()].map(({ work }) => work))
  }

  async close(): Promise<void> {
    const all = [...this.#processes, ...this.#watchers, ...this.#dead]
    for (const process of all) this.#mend(process)
    await Promise.all(all.map(({ discovery }) => discovery.close()))
    for (const { proxy } of all) await proxy[Symbol.asyncDispose]()
  }

  get expected(): string[] {
    return [...this.live].map(([id, { note, status }]) => `${id} ${note} ${status}`).sort()
  }

  #register(id: string, note: number): void {
    // Two processes that live and want one id are at odds whenever etcd forgets which came last; one that takes over is alone.
    const process = this.live.get(id)?.process ?? this.#any(this.#processes)
    const live: Live = { process, registration: undefined, note, status: 'active' }
    this.live.set(id, live)
    const registering = process.discovery.register(worker(id, { note }))
    this.#occupy(
      id,
      process,
      registering.then((registration) => {
        live.registration = registration
      }),
    )
  }

  /** A process dies with all that it held; its supervisor starts some of that again, elsewhere. */
  async #crash(at: number): Promise<void> {
    const process = this.#any(this.#processes)
    this.#processes.splice(this.#processes.indexOf(process), 1)
    this.#dead.push(process)
    process.proxy.cut()
    await this.begin('owner')
    for (const [id, busy] of [...this.#busy]) {
      if (busy.process === process && !this.live.has(id)) this.#busy.delete(id)
    }
    for (const [id, live] of [...this.live]) {
      if (live.process !== process) continue
      const wasBusy = this.#busy.has(id)
      this.live.delete(id)
      this.#busy.delete(id)
      // Whether a write under way arrived is anybody's guess, so that the id is taken over.
      if (wasBusy || this.#random() < 0.5) this.#register(id, at)
    }
  }

  async #restart(): Promise<void> {
    await this.#etcd.kill()
    if (this.#random() < 0.4) this.#etcd.loseData()
    await this.#etcd.restart()
  }

  async #compact(): Promise<void> {
    const { json } = await this.#etcd.gateway('kv/range', { key: 'AA==' })
    // It may be compacted up to there already.
    await this.#etcd.gateway('kv/compaction', { revision: (json.header as { revision: string }).revision })
  }

  async #revokeAny(): Promise<void> {
    const { json } = await this.#etcd.gateway('lease/leases', {})
    const leases = (json.leases ?? []) as { ID: string }[]
    if (leases.length > 0) await this.#etcd.gateway('lease/revoke', { ID: this.#any(leases).ID })
  }

  #mend({ proxy }: Process): void {
    // What was held is old by now: a wire that is mended is a new one.
    proxy.cut()
    proxy.mend()
  }

  #occupy(id: string, process: Process, begun: Promise<unknown> | undefined): void {
    const work = Promise.resolve(begun).then(() => {
      if (this.#busy.get(id)?.work === work) this.#busy.delete(id)
    })
    // A process that died never answers, and is closed without having been asked.
    work.catch(() => {})
    this.#busy.set(id, { process, work })
  }

  #groupOf(group: 'owner' | 'watcher'): Process[] {
    return group === 'owner' ? this.#processes : this.#watchers
  }

  #any<T>(of: readonly T[]): T {
    return of[Math.floor(this.#random() * of.length)] as T
  }
}

describe.skipIf(etcdMissing)('50 workers', () => {
  const cleanups: (() => PromiseLike<unknown>)[] = []
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
  })

  test.each([2, 3])(
    'end in the truth, whatever failed on the way: seed %i',
    { timeout: 120_000 },
    async (seed) => {
      const etcd = await EtcdServer.start()
      cleanups.push(() => etcd[Symbol.asyncDispose]())
      const churn = new Churn(etcd, seededRandom(seed))
      cleanups.push(() => churn.close())
      for (let count = 0; count < 4; count++) await churn.begin('owner')
      const followers: Follower[] = []
      for (let count = 0; count < 2; count++) {
        followers.push(new Follower((await churn.begin('watcher')).discovery))
      }
      for (let step = 0; step < steps; step++) await churn.step(step)
      await churn.settle()

      /** Each live worker once, as it was last told, and no other: in etcd, and in what every watcher knows. */
      const inEtcd = async () => {
        const { json } = await etcd.gateway('kv/range', {
          key: Buffer.from('/infera/workers/').toString('base64'),
          range_end: Buffer.from('/infera/workers0').toString('base64'),
        })
        return ((json.kvs ?? []) as { value: string }[]).map(({ value }) =>
          lineOf(JSON.parse(Buffer.from(value, 'base64').toString())),
        )
      }
      const known = (follower: Follower) => [...follower.known.values()].map(({ record }) => lineOf(record))
      const views = async () =>
        [await inEtcd(), ...followers.map(known)].map((view) => view.sort().join('\n'))
      const expected = churn.expected.join('\n')
      while (!(await views()).every((view) => view === expected)) {
        await new Promise((resolve) => setImmediate(resolve))
      }
      expect(churn.expected.length).toBeGreaterThan(5)
    },
  )
})

const lineOf = (record: Readonly<Record<string, unknown>>) =>
  `${record.worker_id} ${record.note} ${record.status ?? 'active'}`
