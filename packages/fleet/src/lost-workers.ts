import type { Clock } from './ports/clock.js'
import type { WorkerRecord } from './records/worker-record.js'

/** Lost workers that are remembered; the oldest go first. */
const lostMax = 4096

/** Workers whose events have ended for good, as it seems: not served again for a while, unless their record shows another process. */
export class LostWorkers {
  readonly #clock: Clock
  readonly #lostForMs: number
  readonly #lost = new Map<string, { readonly instance: string | undefined; readonly untilMs: number }>()

  constructor(options: { readonly clock: Clock; readonly lostForMs: number }) {
    this.#clock = options.clock
    this.#lostForMs = options.lostForMs
  }

  has(worker: WorkerRecord): boolean {
    const lost = this.#lost.get(worker.worker_id)
    return lost !== undefined && lost.instance === worker.ext?.instance_id && lost.untilMs > this.#clock.now()
  }

  add(worker: WorkerRecord): void {
    const workerId = worker.worker_id
    const untilMs = this.#clock.now() + this.#lostForMs
    this.#lost.delete(workerId)
    this.#lost.set(workerId, { instance: worker.ext?.instance_id, untilMs })
    if (this.#lost.size <= lostMax) return
    for (const oldest of this.#lost.keys()) {
      this.#lost.delete(oldest)
      return
    }
  }
}
