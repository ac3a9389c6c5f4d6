import type { FaultParameters, PlannedFault } from './fault.js'

/** One fault as it happened. Times are ms of the run. */
export interface FaultRecord {
  readonly index: number
  readonly kind: string
  /** Id of the worker that it struck. */
  readonly workerId: string
  readonly parameters: FaultParameters
  readonly beganAtMs: number
  /** null while it lasts. */
  readonly liftedAtMs: number | null
}

/** What was done to a fleet on purpose. Holds one record for each fault of its plan, so the plan is its bound. */
export class FaultLog {
  readonly seed: number
  readonly #records: (FaultRecord & { liftedAtMs: number | null })[] = []

  constructor(seed: number) {
    this.seed = seed
  }

  /** In the order in which they began. */
  get records(): readonly FaultRecord[] {
    return this.#records
  }

  /** @returns to be called once, when it is lifted */
  begin(fault: PlannedFault, workerId: string, atMs: number): (atMs: number) => void {
    const { index, kind, parameters } = fault
    const record: FaultRecord & { liftedAtMs: number | null } = {
      index,
      kind,
      workerId,
      parameters,
      beganAtMs: atMs,
      liftedAtMs: null,
    }
    this.#records.push(record)
    return (liftedAtMs) => {
      record.liftedAtMs = liftedAtMs
    }
  }

  /** How often each kind happened. */
  counts(): Record<string, number> {
    const counts: Record<string, number> = {}
    for (const { kind } of this.#records) counts[kind] = (counts[kind] ?? 0) + 1
    return counts
  }

  toJSON(): { seed: number; faults: readonly FaultRecord[] } {
    return { seed: this.seed, faults: this.#records }
  }

  /** A line for each fault. */
  toString(): string {
    const lines = this.#records.map(({ index, kind, workerId, parameters, beganAtMs, liftedAtMs }) => {
      const told = Object.entries(parameters).map(([name, value]) => `${name}=${value}`)
      const lasted = liftedAtMs === null ? 'not lifted' : `to ${liftedAtMs.toFixed(1)}`
      return `#${index} ${beganAtMs.toFixed(1)} ${lasted} ms: ${[kind, workerId, ...told].join(' ')}`
    })
    return [`faults of seed ${this.seed}:`, ...lines].join('\n')
  }
}
