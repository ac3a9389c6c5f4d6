import type { ClientReport } from './workload/client.js'

// What must be true of a fleet whatever happens to it, as functions of plain facts: each answers with the facts that break it, one
// readable line each, and an empty list when all is well.

/** A request, with what was known of the fleet while it ran. */
export interface RequestFacts extends ClientReport {
  /** Workers that could have answered it from its beginning to its end: see `checkNoneLost`. */
  readonly healthyThroughout: readonly string[]
  /** Ms of the run of each attempt that the router made on a worker. */
  readonly pickedAtMs: readonly number[]
  /** The worker that was tried last; null when there was none. */
  readonly lastWorkerId: string | null
  /** Whether an answer that a client cannot read was made on purpose. */
  readonly isTamperedWith: boolean
}

/** One engine process, after everything ended. */
export interface EngineFacts {
  readonly workerId: string
  readonly instanceId: string
  readonly runningRequests: number
  readonly waitingRequests: number
  /** Ids of requests that its handler is still at work on. */
  readonly handling: readonly string[]
  /** 0..1 */
  readonly kvUsageRatio: number
  /** What its own books say against themselves. */
  readonly bookFaults: readonly string[]
}

/** The router's books. */
export interface BookFacts {
  readonly requestsInFlight: number
  readonly targets: readonly {
    readonly routeKey: string
    readonly requestsInFlight: number
    readonly activeBlocks: number
  }[]
}

/** What the router believes of a worker's cache, beside the cache. */
export interface ViewFacts {
  readonly workerId: string
  readonly believedBlocks: number
  readonly heldBlocks: number
  /** Chains that it holds, and how many leading blocks of each the router would count on. */
  readonly chains: readonly { readonly heldBlocks: number; readonly believedBlocks: number }[]
}

/** Something that must not grow: a queue, a map, timers. */
export interface BoundFacts {
  readonly name: string
  readonly count: number
  readonly countMax: number
}

/** Something that a client no longer wants, and that is worked on all the same. */
export interface LeftoverFacts {
  readonly requestId: string
  readonly workerId: string
  /** For how long nobody has wanted it any more, ms. */
  readonly unwantedForMs: number
}

export interface RunFacts {
  readonly requests: readonly RequestFacts[]
  /** Requests that clients sent and that never ended in any way. */
  readonly unendedRequestIds: readonly string[]
  readonly engines: readonly EngineFacts[]
  readonly books: BookFacts
  readonly views: readonly ViewFacts[]
  readonly bounds: readonly BoundFacts[]
  /** Seen while the fleet ran, each in a line. */
  readonly seenFaults: readonly string[]
  readonly leftovers: readonly LeftoverFacts[]
}

/** Statuses and codes with which a client is told that no worker answered. */
const lostStatuses: ReadonlySet<number | null> = new Set([null, 408, 429, 500, 502, 503, 504])

/**
 * No request is lost before its first byte while a healthy worker existed from its beginning to its end. A worker is healthy while
 * the router knows its present process as active, no fault has it as its target, and it is not draining. Holds for routers that try
 * as many workers as there are.
 */
export function checkNoneLost(requests: readonly RequestFacts[]): string[] {
  return requests
    .filter(({ outcome, status, text, healthyThroughout }) => {
      const isLost = outcome === 'failed' && lostStatuses.has(status) && text === ''
      return isLost && healthyThroughout.length > 0
    })
    .map(
      ({ requestId, error, healthyThroughout }) =>
        `request ${requestId} was lost (${error}) while ${healthyThroughout.join(', ')} could have answered it`,
    )
}

/** No request fails at a worker that was healthy all the while: whatever breaks off has a cause. */
export function checkCauses(requests: readonly RequestFacts[]): string[] {
  return requests.flatMap(
    ({ requestId, outcome, error, status, lastWorkerId, healthyThroughout, isTamperedWith }) => {
      if (outcome !== 'failed') return []
      const lines: string[] = []
      if (lastWorkerId !== null && healthyThroughout.includes(lastWorkerId)) {
        lines.push(`request ${requestId} failed (${error}) at ${lastWorkerId}, to which nothing had happened`)
      }
      if (error?.startsWith('unreadable') && !isTamperedWith) {
        lines.push(
          `request ${requestId} got an answer that cannot be read (${error}), and nobody had tampered with it`,
        )
      }
      if (!isHonest(error ?? ''))
        lines.push(`request ${requestId} failed with ${error} (status ${status}), which says nothing`)
      return lines
    },
  )
}

/** Every request ends: with an answer, with an error, or with its client. */
export function checkAllEnded(requestIds: readonly string[]): string[] {
  return requestIds.map((requestId) => `request ${requestId} never ended`)
}

/** Whoever is told that an answer is complete has all of it and nothing else; whoever is told of an error has a beginning of it. */
export function checkTexts(requests: readonly RequestFacts[]): string[] {
  return requests.flatMap(({ requestId, outcome, text, expectedText }) => {
    if (outcome === 'answered') {
      return text === expectedText ? [] : [`request ${requestId} got '${text}' in place of '${expectedText}'`]
    }
    if (expectedText.startsWith(text)) return []
    return [`request ${requestId} (${outcome}) got '${text}', which is no beginning of '${expectedText}'`]
  })
}

/** Errors that say what happened: of the router, of its HTTP face, of an engine that refuses, of a client that cannot read. */
function isHonest(error: string): boolean {
  return /^(INFERA_ROUTER_(NO_WORKER|WORKERS_FAILED)|no_worker|workers_failed|worker_failed_mid_stream|429|5\d\d|unreadable: .*)$/.test(
    error,
  )
}

/** No worker is tried after bytes of an answer came. */
export function checkNoLateRetries(requests: readonly RequestFacts[]): string[] {
  return requests.flatMap(({ requestId, firstByteAtMs, pickedAtMs }) => {
    const last = pickedAtMs.at(-1)
    const isLate = firstByteAtMs !== null && last !== undefined && last > firstByteAtMs
    return isLate
      ? [`request ${requestId} was tried again at ${last} ms, after its first byte at ${firstByteAtMs} ms`]
      : []
  })
}

/** Nothing is booked once nothing runs. */
export function checkBooks({ requestsInFlight, targets }: BookFacts): string[] {
  return [
    ...(requestsInFlight === 0
      ? []
      : [`the router has ${requestsInFlight} requests in flight and none was left`]),
    ...targets.flatMap((target) =>
      target.requestsInFlight === 0 && target.activeBlocks === 0
        ? []
        : [
            `${target.routeKey} is booked for ${target.requestsInFlight} requests and ${target.activeBlocks} blocks that ended`,
          ],
    ),
  ]
}

/** Nobody works on what nobody wants, and what an engine held for it is free. */
export function checkEngines(engines: readonly EngineFacts[], leftovers: readonly LeftoverFacts[]): string[] {
  return [
    ...engines.flatMap(
      ({ workerId, instanceId, runningRequests, waitingRequests, handling, kvUsageRatio, bookFaults }) => {
        const who = `engine ${instanceId} of ${workerId}`
        return [
          ...(runningRequests + waitingRequests === 0
            ? []
            : [`${who} still runs ${runningRequests} requests and holds ${waitingRequests} more`]),
          ...handling.map((requestId) => `${who} still answers request ${requestId}`),
          ...(kvUsageRatio === 0 ? [] : [`${who} still holds ${kvUsageRatio} of its KV blocks`]),
          ...bookFaults.map((fault) => `${who}: ${fault}`),
        ]
      },
    ),
    ...leftovers.map(
      ({ requestId, workerId, unwantedForMs }) =>
        `worker ${workerId} worked on request ${requestId} ${unwantedForMs} ms after anybody wanted it`,
    ),
  ]
}

/** The router believes of each worker exactly what that holds. */
export function checkViews(views: readonly ViewFacts[]): string[] {
  return views.flatMap(({ workerId, believedBlocks, heldBlocks, chains }) => {
    const wrong = chains.filter((chain) => chain.believedBlocks !== chain.heldBlocks)
    return [
      ...(believedBlocks === heldBlocks
        ? []
        : [`${workerId} holds ${heldBlocks} blocks and is believed to hold ${believedBlocks}`]),
      ...(wrong.length === 0
        ? []
        : [
            `${workerId}: ${wrong.length} of ${chains.length} chains it holds are not believed, as ${JSON.stringify(wrong[0])}`,
          ]),
    ]
  })
}

/** What must not grow did not. */
export function checkBounds(bounds: readonly BoundFacts[]): string[] {
  return bounds
    .filter(({ count, countMax }) => count > countMax)
    .map(({ name, count, countMax }) => `${name}: ${count}, and at most ${countMax} are in order`)
}

/** All of the above. @returns what is broken, in readable lines */
export function checkInvariants(facts: RunFacts): string[] {
  return [
    ...checkAllEnded(facts.unendedRequestIds),
    ...checkNoneLost(facts.requests),
    ...checkCauses(facts.requests),
    ...checkTexts(facts.requests),
    ...checkNoLateRetries(facts.requests),
    ...checkBooks(facts.books),
    ...checkEngines(facts.engines, facts.leftovers),
    ...checkViews(facts.views),
    ...checkBounds(facts.bounds),
    ...facts.seenFaults,
  ]
}
