import { seededRandom } from '@infera/fleet'
import { parseOptions } from '../options.js'
import { FaultDraw, type FaultPort, type PlannedFault } from './fault.js'
import { faultKind } from './fault-kinds.js'
import { FaultOptions, type ResolvedFaultOptions } from './fault-options.js'

/** What a plan must know of the fleet. */
export interface FleetFacts {
  /** How many workers there are. */
  readonly places: number
  /** Where faults can bite; kinds for other ports are left out. */
  readonly ports: ReadonlySet<FaultPort>
}

/**
 * Decides every fault of a run before it begins. Pure: equal options and facts give equal plans. Kinds come in rounds, each as often
 * as its weight says before any comes again, so that a short plan has many. No worker has two faults at once.
 * @returns in order of time
 * @throws InvalidSimOptionsError naming the option and what it must be
 */
export function planFaults(options: FaultOptions, facts: FleetFacts): PlannedFault[] {
  const settings = parseOptions(FaultOptions, options)
  const random = seededRandom(settings.seed)
  const draw = new FaultDraw(random)
  const nextKind = kindsInRounds(settings, facts, draw)
  const { fromMs, untilMs, durationMsMin, durationMsMax } = settings
  const starts = Array.from({ length: settings.count }, () =>
    Math.round(fromMs + random() * (untilMs - fromMs)),
  )
  starts.sort((a, b) => a - b)
  const schedule = new Schedule(settings, facts.places)
  const plan: PlannedFault[] = []
  for (const startMs of starts) {
    const kind = nextKind()
    if (!kind) break
    const durationMs = draw.int(durationMsMin, durationMsMax)
    const { atMs, place } = schedule.take(startMs, durationMs, draw)
    plan.push({ index: plan.length, atMs, kind: kind.name, place, durationMs, parameters: kind.draw(draw) })
  }
  return plan
}

/** When which worker can take its next fault. */
class Schedule {
  readonly #settings: ResolvedFaultOptions
  readonly #freeAtMs: number[]
  /** Ends of those that may still last. */
  #endsMs: number[] = []
  #lastMs = 0

  constructor(settings: ResolvedFaultOptions, places: number) {
    this.#settings = settings
    this.#freeAtMs = Array.from({ length: places }, () => 0)
  }

  take(startMs: number, durationMs: number, draw: FaultDraw): { atMs: number; place: number } {
    let atMs = Math.max(startMs, this.#lastMs, Math.min(...this.#freeAtMs))
    this.#endsMs = this.#endsMs.filter((endMs) => endMs > atMs).sort((a, b) => a - b)
    while (this.#endsMs.length >= this.#settings.concurrentMax)
      atMs = Math.max(atMs, this.#endsMs.shift() as number)
    const free = this.#freeAtMs.flatMap((freeAtMs, place) => (freeAtMs <= atMs ? [place] : []))
    const place = draw.pick(free)
    this.#freeAtMs[place] = atMs + durationMs + this.#settings.recoveryMs
    this.#endsMs.push(atMs + durationMs)
    this.#lastMs = atMs
    return { atMs, place }
  }
}

function kindsInRounds({ kinds }: ResolvedFaultOptions, { ports }: FleetFacts, draw: FaultDraw) {
  const round = Object.entries(kinds).flatMap(([name, weight]) => {
    const kind = faultKind(name)
    return kind && ports.has(kind.port) ? Array.from({ length: weight }, () => kind) : []
  })
  let bag: typeof round = []
  return () => {
    if (bag.length === 0) bag = [...round]
    return bag.length === 0 ? undefined : bag.splice(draw.int(0, bag.length - 1), 1)[0]
  }
}
