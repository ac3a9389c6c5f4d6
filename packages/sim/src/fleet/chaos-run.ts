import { FaultLog } from '../faults/fault-log.js'
import { planFaults } from '../faults/plan-faults.js'
import { type BoundFacts, checkInvariants, type RequestFacts } from '../invariants.js'
import { parseOptions } from '../options.js'
import { askOnce, type ClientReport } from '../workload/client.js'
import { Oracle } from '../workload/oracle.js'
import { planConversations } from '../workload/plan-conversations.js'
import { type PreparedTurn, prepareTurns } from '../workload/prepare-turns.js'
import { sharedPrompt } from '../workload/shared-prompt.js'
import { ChaosOptions } from './chaos-options.js'
import { FaultInjector } from './fault-injector.js'
import { areViewsWhole, boundFacts, engineFacts, type TimerBaseline, viewFacts } from './fleet-facts.js'
import { FleetPatrol } from './fleet-patrol.js'
import { HealthWatch } from './health-watch.js'
import { SimFleet } from './sim-fleet.js'
import { smallEngine } from './sim-fleet-options.js'

/** What came of a run. Plain data but for the log. */
export interface ChaosReport {
  readonly seed: number
  /** What is broken, in readable lines; empty when all is well. */
  readonly violations: readonly string[]
  readonly faults: FaultLog
  readonly requests: readonly RequestFacts[]
  /** How the requests ended, and what the faults did to them. */
  readonly counts: {
    readonly answered: number
    readonly failed: number
    readonly left: number
    /** Attempts beyond the first of a request. */
    readonly retries: number
    /** Failed after the first byte. */
    readonly broken: number
    readonly snapshots: number
    readonly gaps: number
  }
  /** Of everything that happened, in order: equal options have equal digests. */
  readonly digest: string
  /** The last of what happened. */
  readonly trace: readonly string[]
  /** How long it took by the fleet's clock, ms. */
  readonly durationMs: number
}

/**
 * Runs a fleet under clients and faults, waits until it has settled, and checks every invariant. The same options give the same
 * run, down to its digest.
 * @throws InvalidSimOptionsError naming the option and what it must be
 */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const { prompt: given, faults = {}, workload = {}, fleet: fleetOptions = {}, ...own } = options
  const settings = parseOptions(ChaosOptions, own)
  const { seed } = settings
  const prompt = sharedPrompt(given)
  const engine = fleetOptions.engine ?? smallEngine
  const model = fleetOptions.model ?? 'infera-sim'
  const conversations = planConversations({ seed, ...workload })
  const oracle = new Oracle({ ...engine, model, prompt })
  const turns = await prepareTurns(conversations, model, oracle)
  oracle.close()

  const fleet = await SimFleet.start({ seed, ...fleetOptions, prompt })
  const plan = planFaults({ seed, ...faults }, { places: fleet.nodes.length, ports: fleet.faultPorts })
  const run = new Run(fleet, new FaultLog(faults.seed ?? seed))
  const startMs = fleet.clock.now()
  run.injector.schedule(plan)
  const talks = conversations.map((conversation, index) =>
    run.converse(startMs + conversation.startMs, turns[index] ?? []),
  )
  run.patrol.start(settings.lookEveryMs)
  let isOver = false
  const over = Promise.all(talks).then(() => {
    isOver = true
  })
  const hasEnded = await fleet.clock.runUntil(() => isOver && run.injector.isDone, {
    withinMs: settings.endMs,
  })
  if (hasEnded) await over
  run.patrol.stop()
  const isSettled = await fleet.clock.runUntil(() => run.isSettled, { withinMs: settings.settleMs })
  run.patrol.look()
  const violations = checkInvariants({
    requests: run.requests,
    unendedRequestIds: run.unended,
    engines: engineFacts(fleet),
    books: fleet.router.stats(),
    views: await viewFacts(fleet),
    bounds: [...boundFacts(fleet, run.baseline), gapFacts(fleet, run.injector.log)],
    seenFaults: [...run.patrol.faults, ...(isSettled ? [] : ['the fleet had not settled in time'])],
    leftovers: run.patrol.leftovers,
  })
  const { snapshots, gaps } = fleet.router.stats().kvEvents
  const durationMs = fleet.clock.now() - startMs
  const digest = fleet.trace.digest()
  violations.push(...(await shutDown(fleet)))
  return {
    seed,
    violations,
    faults: run.injector.log,
    requests: run.requests,
    counts: { ...countsOf(run.requests), retries: fleet.audit.retries, snapshots, gaps },
    digest,
    trace: fleet.trace.lines,
    durationMs,
  }
}

/** A gap in events has a cause: a batch that was lost, or that came before the one in front of it. */
function gapFacts(fleet: SimFleet, log: FaultLog): BoundFacts {
  const lost = log.records.map(({ kind, parameters }) => {
    if (kind === 'eventsLost' || kind === 'eventsLostAtSource') return Number(parameters.batches)
    return kind === 'eventsReorder' ? Number(parameters.count) : 0
  })
  const countMax = lost.reduce((sum, count) => sum + count, 0)
  return { name: 'gaps in events', count: fleet.router.stats().kvEvents.gaps, countMax }
}

/** Closing needs no time when nothing is left open, and leaves no timer behind. */
async function shutDown(fleet: SimFleet): Promise<string[]> {
  const violations: string[] = []
  const beganMs = fleet.clock.now()
  const isClosed = await fleet.close()
  const tookMs = fleet.clock.now() - beganMs
  if (!isClosed) violations.push('the fleet did not close')
  else if (tookMs > 3_000) violations.push(`closing took ${tookMs} ms: something was still open`)
  // What was under way when the lines closed arrives nowhere, but it arrives.
  await fleet.clock.runUntil(() => fleet.clock.pendingTimers === 0, { withinMs: 1_000 })
  const timers = fleet.clock.pendingTimers
  if (timers > 0) violations.push(`${timers} timers are armed after everything was closed`)
  return violations
}

/** One run on its way. */
class Run {
  readonly fleet: SimFleet
  readonly health: HealthWatch
  readonly injector: FaultInjector
  readonly patrol: FleetPatrol
  readonly requests: RequestFacts[] = []
  readonly baseline: TimerBaseline
  readonly #open = new Set<string>()

  constructor(fleet: SimFleet, log: FaultLog) {
    this.fleet = fleet
    this.baseline = { timers: fleet.clock.pendingTimers }
    this.health = new HealthWatch(fleet)
    this.injector = new FaultInjector(fleet, this.health, log)
    this.patrol = new FleetPatrol(fleet, this.injector)
  }

  get unended(): string[] {
    return [...this.#open]
  }

  /** Whether all that was disturbed is as it was. */
  get isSettled(): boolean {
    return (
      this.fleet.isWhole &&
      boundFacts(this.fleet, this.baseline).every(({ count, countMax }) => count <= countMax) &&
      areViewsWhole(this.fleet)
    )
  }

  async converse(startMs: number, turns: readonly PreparedTurn[]): Promise<void> {
    const { clock } = this.fleet
    await new Promise<void>((resolve) => void clock.setTimer(startMs - clock.now(), resolve))
    for (const prepared of turns) {
      await this.#ask(prepared)
      await new Promise<void>((resolve) => void clock.setTimer(prepared.turn.thinkMs, resolve))
    }
  }

  async #ask(prepared: PreparedTurn): Promise<void> {
    const { fleet, health, patrol } = this
    const { requestId } = prepared.turn
    this.#open.add(requestId)
    const marks = health.mark()
    patrol.asked(requestId)
    const report = await askOnce(fleet.router, fleet.clock, prepared)
    this.#open.delete(requestId)
    const { pickedAtMs, lastWorkerId, isTamperedWith } = patrol.ended(requestId)
    this.requests.push({
      ...report,
      healthyThroughout: report.outcome === 'failed' ? health.stillHealthy(marks) : [],
      pickedAtMs,
      lastWorkerId,
      isTamperedWith,
    })
    this.#trace(report)
  }

  #trace({ requestId, outcome, status, text, error }: ClientReport): void {
    this.fleet.trace.add(this.fleet.clock.now(), 'client', requestId, outcome, status, text.length, error)
  }
}

function countsOf(requests: readonly RequestFacts[]) {
  const count = (is: (request: RequestFacts) => boolean) => requests.filter(is).length
  return {
    answered: count(({ outcome }) => outcome === 'answered'),
    failed: count(({ outcome }) => outcome === 'failed'),
    left: count(({ outcome }) => outcome === 'left'),
    broken: count(
      ({ outcome, firstByteAtMs, status }) =>
        outcome === 'failed' && firstByteAtMs !== null && status === 200,
    ),
  }
}
