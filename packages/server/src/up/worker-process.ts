import { type ChildProcess, fork } from 'node:child_process'
import type { Clock, Logger, Random, Timer } from '@infera/fleet'

const restartBackoffMs = { first: 500, max: 30_000 }
/** A worker that ran this long had started well: its next restart is quick again. */
const healthyAfterMs = 60_000

export interface WorkerProcessPorts {
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
}

/**
 * One worker as a child process. It is started again, with growing pauses, when it ends by itself; it cannot outlive us,
 * because it ends when the channel between us breaks.
 */
export class WorkerProcess {
  readonly #entry: string
  readonly #args: readonly string[]
  readonly #env: NodeJS.ProcessEnv
  readonly #ports: WorkerProcessPorts
  #child: ChildProcess | undefined
  #restart: Timer | undefined
  #failures = 0
  #isStopping = false
  #stopped: Promise<void> | undefined

  constructor(entry: string, args: readonly string[], env: NodeJS.ProcessEnv, ports: WorkerProcessPorts) {
    this.#entry = entry
    this.#args = args
    this.#env = env
    this.#ports = ports
  }

  get pid(): number | undefined {
    return this.#child?.pid
  }

  start(): void {
    const startedAtMs = this.#ports.clock.now()
    // Standard output would mix with what `up` answers; a worker's lines go to stderr.
    const child = fork(this.#entry, [...this.#args], { stdio: ['ignore', 2, 2, 'ipc'], env: this.#env })
    this.#child = child
    child.once('error', (error) => this.#ports.logger.error({ error: error.message }, 'worker process error'))
    child.once('exit', (code, signal) => {
      this.#child = undefined
      if (this.#isStopping) return
      this.#failures = this.#ports.clock.now() - startedAtMs > healthyAfterMs ? 0 : this.#failures + 1
      const delayMs = this.#backoffMs()
      this.#ports.logger.warn(
        { pid: child.pid, code, signal, restart_in_ms: Math.round(delayMs) },
        'worker process ended',
      )
      this.#restart = this.#ports.clock.setTimer(delayMs, () => this.start())
    })
  }

  #backoffMs(): number {
    const ceiling = Math.min(
      restartBackoffMs.max,
      restartBackoffMs.first * 2 ** Math.max(0, this.#failures - 1),
    )
    return ceiling * (0.5 + this.#ports.random() / 2)
  }

  /** Asks the worker to drain and end, and kills it after the grace. Resolves when the process is gone. Idempotent. */
  stop(graceMs: number): Promise<void> {
    this.#isStopping = true
    this.#restart?.cancel()
    this.#stopped ??= this.#end(graceMs)
    return this.#stopped
  }

  /** Kills it now. */
  kill(): void {
    this.#isStopping = true
    this.#restart?.cancel()
    this.#child?.kill('SIGKILL')
  }

  async #end(graceMs: number): Promise<void> {
    const child = this.#child
    if (!child) return
    const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()))
    child.kill('SIGTERM')
    const timer = this.#ports.clock.setTimer(graceMs, () => child.kill('SIGKILL'))
    await gone
    timer.cancel()
  }
}
