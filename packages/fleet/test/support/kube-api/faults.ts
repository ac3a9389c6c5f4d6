/** One request, as the server understood it. */
export interface ApiCall {
  readonly verb: 'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete' | 'discover'
  readonly resource: string
  readonly namespace: string | undefined
  readonly name: string | undefined
  readonly subresource: string | undefined
  readonly query: URLSearchParams
  readonly authorization: string | undefined
  readonly contentType: string
  /** As it came; empty without one. */
  readonly body: string
}

/** What goes wrong with a call. Where it names nothing but `waitFor`, the call goes on after the wait. */
export interface Fault {
  /** The call waits for this first. */
  readonly waitFor?: Promise<unknown>
  /** Answered with this status, and a Status object as its body. */
  readonly status?: number
  readonly message?: string
  readonly retryAfterSeconds?: number
  /** Answered with 200 and these bytes. */
  readonly body?: string
  /** The connection is cut without an answer. */
  readonly cut?: boolean
}

interface Rule {
  readonly matches: (call: ApiCall) => boolean
  readonly fault: Fault
  timesLeft: number
}

/** What goes wrong, in the order in which it was asked for. */
export class Faults {
  readonly #rules = new Set<Rule>()

  /**
   * @param options.times calls it meets before it is over; without it, until the result is called
   * @returns ends it
   */
  add(
    matches: ApiCall['verb'] | ((call: ApiCall) => boolean),
    fault: Fault,
    options: { readonly times?: number } = {},
  ): () => void {
    const rule: Rule = {
      matches: typeof matches === 'function' ? matches : (call) => call.verb === matches,
      fault,
      timesLeft: options.times ?? Infinity,
    }
    this.#rules.add(rule)
    return () => this.#rules.delete(rule)
  }

  clear(): void {
    this.#rules.clear()
  }

  /** The first that meets this call. */
  take(call: ApiCall): Fault | undefined {
    for (const rule of this.#rules) {
      if (!rule.matches(call)) continue
      rule.timesLeft -= 1
      if (rule.timesLeft <= 0) this.#rules.delete(rule)
      return rule.fault
    }
    return undefined
  }
}
