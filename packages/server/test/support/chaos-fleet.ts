import { ChaosProxy } from './chaos-proxy.js'
import { Cli } from './cli.js'

interface Place {
  readonly proxy: ChaosProxy
  worker: Cli
}

/** A server and its workers, each a process of its own, with a proxy on every worker's line. */
export class ChaosFleet {
  readonly url: string
  readonly #server: Cli
  readonly #places: Place[]
  readonly #past: Cli[] = []

  private constructor(server: Cli, url: string, places: Place[]) {
    this.#server = server
    this.url = url
    this.#places = places
  }

  static async start(workers: number): Promise<ChaosFleet> {
    const server = new Cli(['server', '--port', '0', '--json', '--log-level', 'error'])
    const { url } = await server.ready()
    const proxies = await Promise.all(Array.from({ length: workers }, () => ChaosProxy.start(url)))
    return new ChaosFleet(
      server,
      url,
      proxies.map((proxy) => ({ proxy, worker: startWorker(proxy) })),
    )
  }

  get places(): readonly Place[] {
    return this.#places
  }

  /** Whether the server knows every worker process that is there as active, and nobody else. */
  async isWhole(): Promise<boolean> {
    const response = await fetch(`${this.url}/v1/workers`)
    const { workers } = (await response.json()) as {
      workers: { worker_id: string; status: string; cache_view: string }[]
    }
    const expected = this.#places.map(({ worker }) => String(worker.child.pid)).sort()
    const active = workers.filter(({ status, cache_view }) => status === 'active' && cache_view === 'live')
    const known = active.map(({ worker_id }) => worker_id.split(':').at(-1) as string).sort()
    return workers.length === expected.length && known.join() === expected.join()
  }

  /** The worker process at that place is told to end, and another one takes its place at once. */
  replace(place: number, signal: 'SIGKILL' | 'SIGTERM'): void {
    const { proxy, worker } = this.#places[place] as Place
    worker.child.kill(signal)
    this.#past.push(worker)
    this.#places[place] = { proxy, worker: startWorker(proxy) }
  }

  /** A gauge of the server's metrics, summed over its labels. */
  async gauge(name: string): Promise<number> {
    const text = await (await fetch(`${this.url}/metrics`)).text()
    const values = [...text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))]
    if (values.length === 0) throw new Error(`no gauge ${name} in the metrics`)
    return values.reduce((sum, [, value]) => sum + Number(value), 0)
  }

  /** Ends all of it as a supervisor would. @returns the exit codes, and whether a process is left */
  async stop(): Promise<{ codes: (number | null)[]; isAnyAlive: boolean }> {
    const present = [...this.#places.map(({ worker }) => worker), this.#server]
    for (const { child } of present) child.kill('SIGTERM')
    const ended = await Promise.all(present.map((cli) => cli.ended))
    await Promise.all(this.#past.map((cli) => cli.ended))
    const isAnyAlive = [...present, ...this.#past].some((cli) => cli.isGroupAlive)
    return { codes: ended.map(({ code }) => code), isAnyAlive }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const cli of [...this.#places.map(({ worker }) => worker), ...this.#past, this.#server]) {
      await cli[Symbol.asyncDispose]()
    }
    for (const { proxy } of this.#places) await proxy[Symbol.asyncDispose]()
  }
}

function startWorker(proxy: ChaosProxy): Cli {
  return new Cli([
    'worker',
    'sim',
    '--join',
    proxy.url,
    '--time-scale',
    '0.2',
    '--kv-blocks',
    '384',
    '--log-level',
    'error',
  ])
}
