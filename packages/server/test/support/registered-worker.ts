import { type Discovery, systemClock } from '@infera/fleet'
import { loadPromptModel } from '@infera/router/prompt'
import { SimEngine, SimHttpServer, simModelFolder, simWorkerRecord, simWorkerSettings } from '@infera/sim'
import { EngineWorker, type WorkerPlane } from '@infera/worker'

/** A simulated engine in this process that serves HTTP and is announced in a registry. */
export class RegisteredWorker {
  readonly engine: SimEngine
  readonly #http: SimHttpServer
  readonly worker: EngineWorker

  private constructor(engine: SimEngine, http: SimHttpServer, worker: EngineWorker) {
    this.engine = engine
    this.#http = http
    this.worker = worker
  }

  static async start(
    discovery: Discovery,
    planesOf: (parts: { workerId: string; engine: SimEngine }) => readonly WorkerPlane[] = () => [],
  ): Promise<RegisteredWorker> {
    const prompt = await loadPromptModel(simModelFolder)
    const engine = new SimEngine({ model: 'infera-sim', prompt, timeScale: 0, clock: systemClock })
    const http = new SimHttpServer(engine, { port: 0 })
    const url = await http.start()
    const workerId = new URL(url).host
    const worker = new EngineWorker({
      record: simWorkerRecord(engine, { workerId, url }),
      discovery,
      planes: [...planesOf({ workerId, engine })],
      settings: simWorkerSettings(engine),
      runningRequests: () => engine.load().runningRequests + engine.load().waitingRequests,
      settleMs: 20,
      deregisterTimeoutMs: 500,
      strictFleet: false,
    })
    await worker.start()
    return new RegisteredWorker(engine, http, worker)
  }

  get id(): string {
    return this.worker.record.worker_id
  }

  /** Dies as a process does: its port is closed, and its record is left to its fate. */
  async die(): Promise<void> {
    this.engine.destroy()
    await this.#http.destroy()
  }

  /** Leaves as a process does that was told to. */
  async leave(): Promise<void> {
    await this.worker.close()
    // Servers that were not told send on: they find the port closed from here on, and what runs ends.
    await Promise.all([this.#http.close(), this.engine.close()])
    await this.die()
  }
}
