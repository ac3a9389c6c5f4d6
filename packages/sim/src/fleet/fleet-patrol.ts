import type { Timer } from '@infera/fleet'
import type { Placement } from '@infera/router'
import type { LeftoverFacts } from '../invariants.js'
import type { FaultInjector } from './fault-injector.js'
import type { SimFleet } from './sim-fleet.js'

/** What was seen of one request from outside. */
export interface RequestSighting {
  readonly pickedAtMs: readonly number[]
  readonly lastWorkerId: string | null
  readonly isTamperedWith: boolean
}

interface Pick {
  readonly workerId: string
  readonly atMs: number
}

/** Lines of faults that are kept; one is enough to fail, and a broken run has thousands. */
const faultsMax = 50
/** Attempts at one request beyond the number of workers that are in order: those whose workers came and went meanwhile. */
const extraAttemptsMax = 16

/**
 * Looks at a fleet while it runs: at each pick, and at the books and the engines every so often, between turns. What takes a
 * message a moment to arrive is given that moment.
 */
export class FleetPatrol {
  readonly #fleet: SimFleet
  readonly #injector: FaultInjector
  readonly #requests = new Map<string, Pick[]>()
  /** When each request ended, for those that did. */
  readonly #endedAtMs = new Map<string, number>()
  readonly #leftovers = new Map<string, LeftoverFacts>()
  readonly #faults: string[] = []
  readonly #stopListening: () => void
  #timer: Timer | undefined

  constructor(fleet: SimFleet, injector: FaultInjector) {
    this.#fleet = fleet
    this.#injector = injector
    this.#stopListening = fleet.onPick(({ requestId, placement }) => this.#picked(requestId, placement))
  }

  get faults(): readonly string[] {
    return this.#faults
  }

  get leftovers(): readonly LeftoverFacts[] {
    return [...this.#leftovers.values()].slice(0, faultsMax)
  }

  start(everyMs: number): void {
    this.#timer = this.#fleet.clock.setTimer(everyMs, () => {
      this.look()
      this.start(everyMs)
    })
  }

  stop(): void {
    this.#timer?.cancel()
    this.#stopListening()
  }

  asked(requestId: string): void {
    this.#requests.set(requestId, [])
  }

  ended(requestId: string): RequestSighting {
    this.#endedAtMs.set(requestId, this.#fleet.clock.now())
    const picks = this.#requests.get(requestId) ?? []
    this.#requests.delete(requestId)
    return {
      pickedAtMs: picks.map(({ atMs }) => atMs),
      lastWorkerId: picks.at(-1)?.workerId ?? null,
      isTamperedWith: picks.some(({ workerId, atMs }) => this.#injector.wasTamperedWith(workerId, atMs)),
    }
  }

  #picked(requestId: string, { workerId, overlapBlocks }: Placement): void {
    const { clock, router } = this.#fleet
    const picks = this.#requests.get(requestId)
    if (!picks) {
      this.#say(`request ${requestId} was placed on ${workerId} and nobody was waiting for it`)
      return
    }
    if (picks.some((pick) => pick.workerId === workerId)) {
      this.#say(`request ${requestId} was placed on ${workerId} again, which had failed it`)
    }
    picks.push({ workerId, atMs: clock.now() })
    if (picks.length > this.#fleet.nodes.length + extraAttemptsMax) {
      this.#say(`request ${requestId} was placed ${picks.length} times`)
      // It may go on for ever within one turn, in which nobody else could end it.
      void router.destroy()
      return
    }
    const known = router.workers().find(({ worker_id }) => worker_id === workerId)
    if (known?.status !== 'active') {
      this.#say(
        `request ${requestId} was placed on ${workerId}, which the router knew to be ${known?.status ?? 'gone'}`,
      )
    }
    this.#checkBelief(requestId, workerId, known?.ext?.instance_id, overlapBlocks)
  }

  /** More than an engine holds in all is never believed of it, or it would be what another process at that place held. */
  #checkBelief(
    requestId: string,
    workerId: string,
    instanceId: string | undefined,
    overlapBlocks: number,
  ): void {
    const node = this.#fleet.nodes.find((each) => each.workerId === workerId)
    if (!node || node.engine.instanceId !== instanceId) return
    const { cachedBlocks } = node.engine
    if (overlapBlocks <= cachedBlocks) return
    this.#say(
      `request ${requestId} was placed on ${workerId} for ${overlapBlocks} blocks, and it held ${cachedBlocks} in all`,
    )
  }

  /** Looks once, now. To be called between turns. */
  look(): void {
    const { clock, audit, nodes } = this.#fleet
    for (const { routeKey, booked, expected } of audit.differences()) {
      this.#say(`at ${clock.now()} ms ${routeKey} was booked for ${booked} requests and had ${expected}`)
    }
    for (const node of nodes) {
      if (!this.#injector.isCalm(node.place)) continue
      const graceMs = this.#graceMs
      for (const { requestId, sinceMs } of node.watch.running) {
        const endedAtMs = this.#endedAtMs.get(requestId)
        if (endedAtMs === undefined) continue
        const unwantedForMs = clock.now() - Math.max(endedAtMs, sinceMs)
        if (unwantedForMs <= graceMs || this.#leftovers.has(requestId)) continue
        this.#leftovers.set(requestId, { requestId, workerId: node.workerId, unwantedForMs })
      }
    }
    for (const node of nodes) {
      for (const { requestId, sinceMs } of node.watch.arrivalsAfterDrain(this.#graceMs)) {
        if (sinceMs <= this.#injector.blindUntilMs + this.#graceMs) continue
        this.#say(`request ${requestId} came to ${node.workerId} after it had drained`)
      }
    }
  }

  /** A cancel, or the word that a worker drains, crosses a line once; what was sent meanwhile crosses it back. */
  get #graceMs(): number {
    return 4 * this.#fleet.latencyMs + 20
  }

  #say(line: string): void {
    if (this.#faults.length < faultsMax) this.#faults.push(line)
  }
}
