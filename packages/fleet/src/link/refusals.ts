import type { Refusal } from './frames.js'

/** A worker that wanted to join and was turned away, and has not come in since. */
export interface RefusedWorker {
  /** As it called itself; empty when it said nothing usable. */
  readonly workerId: string
  /** What differs or is wrong, with both values where there are two. */
  readonly reason: string
  /** The setting that differs, where it is one. */
  readonly setting: string | null
  /** How often it was turned away, the last time included. */
  readonly count: number
  /** Since the last time. */
  readonly ageMs: number
}

const workersMax = 256
const workerIdMax = 512

/** Who was turned away last, for operators who miss a worker. At most 256 workers; the one refused longest ago is forgotten first. */
export class Refusals {
  readonly #now: () => number
  readonly #refused = new Map<
    string,
    { reason: string; setting: string | null; count: number; atMs: number }
  >()

  constructor(now: () => number) {
    this.#now = now
  }

  /** @param record what the worker said of itself, not yet trusted */
  add(record: unknown, { reason, setting }: Refusal): void {
    const said = (record as { worker_id?: unknown } | null)?.worker_id
    const workerId = typeof said === 'string' && said.length <= workerIdMax ? said : ''
    const count = (this.#refused.get(workerId)?.count ?? 0) + 1
    this.#refused.delete(workerId)
    this.#refused.set(workerId, { reason, setting: setting ?? null, count, atMs: this.#now() })
    for (const oldest of this.#refused.keys()) {
      if (this.#refused.size <= workersMax) break
      this.#refused.delete(oldest)
    }
  }

  /** It came in after all. */
  remove(workerId: string): void {
    this.#refused.delete(workerId)
  }

  /** In the order of their last refusal. */
  list(): RefusedWorker[] {
    const nowMs = this.#now()
    return [...this.#refused].map(([workerId, { reason, setting, count, atMs }]) => ({
      workerId,
      reason,
      setting,
      count,
      ageMs: nowMs - atMs,
    }))
  }
}
