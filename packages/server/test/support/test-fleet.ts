import type { Logger } from '@infera/fleet'
import { type SimWorker, type SimWorkerOptions, simModelFolder, startSimWorker } from '@infera/sim'
import { InferaServer } from '../../src/infera-server.js'
import type { InferaServerOptions } from '../../src/options.js'

export interface TestFleetOptions {
  readonly workers: number
  readonly server?: InferaServerOptions
  readonly engine?: SimWorkerOptions['engine']
  readonly model?: { readonly name: string; readonly folder: string }
  /** What the workers load; default `model`. */
  readonly workerModel?: { readonly name: string; readonly folder: string }
  readonly logger?: Logger
}

// biome-ignore lint/suspicious/noExplicitAny: answers are looked into by path; a wrong path fails the test that takes it
export type Json = any

/** A real server on a free port with simulated workers in this process that joined it by link. */
export class TestFleet {
  readonly server: InferaServer
  readonly workers: SimWorker[]
  readonly url: string
  readonly joinUrl: string

  private constructor(server: InferaServer, workers: SimWorker[], url: string, joinUrl: string) {
    this.server = server
    this.workers = workers
    this.url = url
    this.joinUrl = joinUrl
  }

  static async start(options: TestFleetOptions): Promise<TestFleet> {
    const model = options.model ?? { name: 'infera-sim', folder: simModelFolder }
    const ports = options.logger ? { logger: options.logger } : {}
    const server = new InferaServer({ port: 0, models: [model], ...options.server }, ports)
    const url = await server.start()
    const joinUrl = url.replace(/^http/, 'ws')
    const fleet = new TestFleet(server, [], url, joinUrl)
    for (let index = 0; index < options.workers; index++) {
      fleet.workers.push(
        await fleet.startWorker(`127.0.0.1:${index + 1}`, options.workerModel ?? model, options.engine),
      )
    }
    await server.workersRegistered(options.workers, { signal: AbortSignal.timeout(30_000) })
    return fleet
  }

  async startWorker(
    workerId: string,
    model = { name: 'infera-sim', folder: simModelFolder },
    engine: SimWorkerOptions['engine'] = { timeScale: 0 },
  ): Promise<SimWorker> {
    const worker = await startSimWorker({
      join: [this.joinUrl],
      workerId,
      model: model.name,
      modelFolder: model.folder,
      engine: engine ?? {},
    })
    await worker.joined
    return worker
  }

  async get(path: string): Promise<{ status: number; headers: Headers; body: Json }> {
    const response = await fetch(this.url + path)
    const text = await response.text()
    const isJson = response.headers.get('content-type')?.startsWith('application/json')
    return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text }
  }

  async post(path: string, body: unknown): Promise<{ status: number; headers: Headers; body: Json }> {
    const response = await fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
    return { status: response.status, headers: response.headers, body: (await response.json()) as Json }
  }

  /** Resolves once the router believes of every worker exactly as many blocks as its engine holds. */
  async viewsSettled(): Promise<void> {
    for (const worker of this.workers) {
      await until(() => this.#blocksInView(worker) === worker.engine.cachedBlocks)
    }
  }

  /** Resolves once no engine runs or queues anything and the router has nothing booked. */
  async enginesIdle(): Promise<void> {
    await until(() =>
      this.workers.every(({ engine }) => engine.load().runningRequests + engine.load().waitingRequests === 0),
    )
    await until(() => this.server.router.stats().requestsInFlight === 0)
  }

  #blocksInView(worker: SimWorker): number | undefined {
    return this.server.router.cacheView(worker.record.worker_id, 0)?.blockCount
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.close()))
    await this.server.close()
  }
}

/** Lets the event loop turn until a condition holds; the test's own time limit is the bound. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve))
}
