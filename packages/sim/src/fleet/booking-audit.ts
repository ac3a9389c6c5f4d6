import {
  type PickMessage,
  pickChannel,
  type RequestMessage,
  type Router,
  requestChannel,
} from '@infera/router'

/** Where the router has booked something else than what it was seen to do. */
export interface BookingDifference {
  readonly routeKey: string
  readonly booked: number
  readonly expected: number
}

/**
 * Keeps the router's books a second time, from what it publishes: a pick books one request at its target, in place of what the
 * request had before; its end, or the target's, takes that away. The two must agree whenever nothing is in the middle of a turn.
 */
export class BookingAudit {
  readonly #router: Router
  readonly #byTarget = new Map<string, Set<string>>()
  readonly #targetOf = new Map<string, string>()
  readonly #onPick: (pick: PickMessage) => void
  #attempts = 0
  readonly #stop: () => void

  /** @param onPick told of each pick of this router, retries included */
  constructor(
    router: Router,
    hooks: {
      readonly onPick: (pick: PickMessage) => void
      readonly onRequest: (request: RequestMessage) => void
    },
  ) {
    this.#router = router
    this.#onPick = hooks.onPick
    const onPick = (message: unknown) => {
      if ((message as PickMessage).router === router) this.#picked(message as PickMessage)
    }
    const onRequest = (message: unknown) => {
      if ((message as RequestMessage).router !== router) return
      this.#release((message as RequestMessage).requestId)
      hooks.onRequest(message as RequestMessage)
    }
    pickChannel.subscribe(onPick)
    requestChannel.subscribe(onRequest)
    this.#stop = () => {
      pickChannel.unsubscribe(onPick)
      requestChannel.unsubscribe(onRequest)
    }
  }

  /** Picks that were not the first of their request. */
  get retries(): number {
    return this.#attempts
  }

  /** To be called between turns. */
  differences(): BookingDifference[] {
    return this.#router.stats().targets.flatMap(({ routeKey, requestsInFlight }) => {
      const expected = this.#byTarget.get(routeKey)?.size ?? 0
      return requestsInFlight === expected ? [] : [{ routeKey, booked: requestsInFlight, expected }]
    })
  }

  /** What was booked at a worker that left is void; should it come back, it begins with nothing. */
  forget(workerId: string): void {
    for (const [routeKey, booked] of this.#byTarget) {
      if (routeKey !== workerId && !routeKey.startsWith(`${workerId}#`)) continue
      for (const requestId of booked) this.#targetOf.delete(requestId)
      this.#byTarget.delete(routeKey)
    }
  }

  close(): void {
    this.#stop()
  }

  #picked(message: PickMessage): void {
    const { requestId, placement, attempt } = message
    if (attempt > 1) this.#attempts += 1
    this.#release(requestId)
    const booked = this.#byTarget.get(placement.routeKey) ?? new Set()
    this.#byTarget.set(placement.routeKey, booked.add(requestId))
    this.#targetOf.set(requestId, placement.routeKey)
    this.#onPick(message)
  }

  #release(requestId: string): void {
    const routeKey = this.#targetOf.get(requestId)
    if (routeKey === undefined) return
    this.#targetOf.delete(requestId)
    this.#byTarget.get(routeKey)?.delete(requestId)
  }
}
