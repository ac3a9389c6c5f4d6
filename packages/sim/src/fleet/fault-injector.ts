import { invariant } from '../errors.js'
import type { PlannedFault } from '../faults/fault.js'
import { faultKind } from '../faults/fault-kinds.js'
import type { FaultLog } from '../faults/fault-log.js'
import type { HealthWatch } from './health-watch.js'
import type { SimFleet } from './sim-fleet.js'

/** Faults that end an answer in a way that only its reader can tell. */
const tampering: ReadonlySet<string> = new Set(['answerCut', 'answerCorrupted'])

/** Faults that keep what happens to any worker from the router. */
const blinding: ReadonlySet<string> = new Set(['watchStalls', 'watchBreaks'])
/** For so long after a fault was lifted its effects may still be under way, ms. */
const aftermathMs = 2_500

/** Does to a fleet what was planned, when it was planned, and writes down what it did. */
export class FaultInjector {
  readonly log: FaultLog
  readonly #fleet: SimFleet
  readonly #health: HealthWatch
  /** When whose answers were tampered with, ms of the clock. At most one for each fault. */
  readonly #tampered: { readonly workerId: string; readonly untilMs: number }[] = []
  readonly #calmAtMs: number[]
  #waiting = 0
  #blindUntilMs = Number.NEGATIVE_INFINITY

  constructor(fleet: SimFleet, health: HealthWatch, log: FaultLog) {
    this.#fleet = fleet
    this.#health = health
    this.log = log
    this.#calmAtMs = fleet.nodes.map(() => Number.NEGATIVE_INFINITY)
  }

  /** Whether every fault that was planned has been lifted. */
  get isDone(): boolean {
    return this.#waiting === 0
  }

  /** Whether nothing is being done to the worker at this place, nor was a moment ago. */
  isCalm(place: number): boolean {
    return this.#fleet.clock.now() >= (this.#calmAtMs[place] ?? 0)
  }

  /** Until when the router could not learn what happened to its workers, ms of the clock. */
  get blindUntilMs(): number {
    return this.#blindUntilMs
  }

  /** Whether answers of that worker were tampered with at any time since then. @param sinceMs ms of the clock */
  wasTamperedWith(workerId: string, sinceMs: number): boolean {
    return this.#tampered.some((each) => each.workerId === workerId && each.untilMs >= sinceMs)
  }

  /** Times are counted from now. */
  schedule(plan: readonly PlannedFault[]): void {
    const { clock } = this.#fleet
    for (const fault of plan) {
      this.#waiting += 1
      clock.setTimer(fault.atMs, () => this.#begin(fault))
    }
  }

  #begin(fault: PlannedFault): void {
    const { clock, nodes, trace } = this.#fleet
    const kind = faultKind(fault.kind)
    const node = nodes[fault.place]
    invariant(kind !== undefined && node !== undefined, 'a plan names kinds and places that there are')
    const { workerId } = node
    const heal = this.#health.begin(fault.place)
    const logLifted = this.log.begin(fault, workerId, clock.now())
    trace.add(clock.now(), 'fault', fault.index, fault.kind, workerId, JSON.stringify(fault.parameters))
    if (tampering.has(fault.kind)) {
      this.#tampered.push({ workerId, untilMs: clock.now() + fault.durationMs })
    }
    this.#calmAtMs[fault.place] = clock.now() + fault.durationMs + aftermathMs
    if (blinding.has(fault.kind))
      this.#blindUntilMs = Math.max(this.#blindUntilMs, clock.now() + fault.durationMs)
    const lift = kind.begin(node, fault.parameters)
    clock.setTimer(fault.durationMs, () => {
      trace.add(clock.now(), 'lifted', fault.index)
      lift()
      heal()
      logLifted(clock.now())
      this.#waiting -= 1
    })
  }
}
