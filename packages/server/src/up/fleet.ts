import { fileURLToPath } from 'node:url'
import { type Clock, type Logger, type Random, silentLogger, systemClock, systemRandom } from '@infera/fleet'
import { ServerError } from '../errors.js'
import { InferaServer } from '../infera-server.js'
import type { InferaServerOptions } from '../options.js'
import { WorkerProcess } from './worker-process.js'

export interface FleetOptions {
  readonly server: InferaServerOptions
  /** Number of simulated workers. */
  readonly workers: number
  readonly worker: {
    readonly timeScale: number
    readonly kvBlocks: number
    readonly drainTimeoutMs: number
    /** Where workers read the token that they present, when the server's tokens are no fixed one. */
    readonly joinTokenFile?: string
  }
  /** How long all workers together may take to register. */
  readonly readyTimeoutMs?: number
}

export interface FleetPorts {
  readonly logger?: Logger
  readonly clock?: Clock
  readonly random?: Random
}

export interface FleetReady {
  readonly url: string
  readonly model: string
  readonly workers: number
}

const defaultReadyTimeoutMs = 60_000
/** What a killed worker is given beyond its own drain before it is killed. */
const killAfterMs = 2_000

/** A server with simulated workers as child processes of this one. */
export class Fleet {
  readonly #options: FleetOptions
  readonly #server: InferaServer
  readonly #clock: Clock
  readonly #workers: WorkerProcess[] = []
  readonly #ports: { clock: Clock; random: Random; logger: Logger }

  constructor(options: FleetOptions, ports: FleetPorts = {}) {
    this.#options = options
    this.#clock = ports.clock ?? systemClock
    this.#ports = {
      clock: this.#clock,
      random: ports.random ?? systemRandom,
      logger: ports.logger ?? silentLogger,
    }
    this.#server = new InferaServer(options.server, this.#ports)
  }

  /**
   * Workers join over a loopback listener of their own first; the public one opens when all of them are registered.
   * @throws ServerError `INFERA_SERVER_WORKERS` when they do not register in time
   */
  async start(): Promise<FleetReady> {
    const joinUrl = await this.#server.openJoin()
    const model = this.#server.models[0] as { name: string; folder: string }
    for (let index = 0; index < this.#options.workers; index++) {
      const worker = new WorkerProcess(
        cliEntry(),
        this.#workerArgs(joinUrl, model),
        this.#workerEnv(),
        this.#ports,
      )
      this.#workers.push(worker)
      worker.start()
    }
    await this.#workersRegistered()
    const url = await this.#server.start()
    return { url, model: model.name, workers: this.#options.workers }
  }

  /** Lets requests end, then the workers. Idempotent. */
  async close(): Promise<void> {
    await this.#server.drain()
    const graceMs = this.#options.worker.drainTimeoutMs + killAfterMs
    await Promise.all(this.#workers.map((worker) => worker.stop(graceMs)))
    await this.#server.close()
  }

  /** Ends everything now. */
  async destroy(): Promise<void> {
    for (const worker of this.#workers) worker.kill()
    await this.#server.destroy()
  }

  async #workersRegistered(): Promise<void> {
    const timeout = new AbortController()
    const timeoutMs = this.#options.readyTimeoutMs ?? defaultReadyTimeoutMs
    const timer = this.#clock.setTimer(timeoutMs, () => timeout.abort())
    try {
      const count = await this.#server.workersRegistered(this.#options.workers, { signal: timeout.signal })
      if (count >= this.#options.workers) return
      throw new ServerError(
        'INFERA_SERVER_WORKERS',
        `only ${count} of ${this.#options.workers} workers registered within ${timeoutMs} ms; run with --log-level debug to see why`,
      )
    } finally {
      timer.cancel()
    }
  }

  #workerArgs(joinUrl: string, model: { name: string; folder: string }): string[] {
    const { timeScale, kvBlocks, drainTimeoutMs, joinTokenFile } = this.#options.worker
    return [
      ...['worker', 'sim', '--join', joinUrl, '--model', model.name, '--model-folder', model.folder],
      ...['--time-scale', String(timeScale), '--kv-blocks', String(kvBlocks)],
      ...['--drain-timeout', String(drainTimeoutMs / 1000), '--log-level', 'warn'],
      ...(joinTokenFile === undefined ? [] : ['--join-token-file', joinTokenFile]),
    ]
  }

  /** The token goes by the environment: a command line can be read by every user of the machine. */
  #workerEnv(): NodeJS.ProcessEnv {
    const { joinToken = [] } = this.#options.server
    const [token] = typeof joinToken === 'function' ? [] : [joinToken].flat()
    return token === undefined ? process.env : { ...process.env, INFERA_JOIN_TOKEN: token }
  }
}

/** The command-line entry beside this module: `cli.js` when built, `cli.ts` when run from sources. */
function cliEntry(): string {
  const here = import.meta.url
  return fileURLToPath(new URL(here.endsWith('.ts') ? '../cli.ts' : './cli.js', here))
}
