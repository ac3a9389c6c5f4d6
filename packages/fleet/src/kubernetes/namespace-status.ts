import type { Logger } from '../ports/logger.js'

/** How the watch of one namespace does. */
export interface NamespaceStatus {
  readonly namespace: string
  /** `live`: a watch is open; `failing`: what is known may be out of date, and `reason` says why. */
  readonly state: 'idle' | 'starting' | 'live' | 'failing'
  /** Whether its Pods were listed at least once. */
  readonly isListed: boolean
  /** Failures since a watch was last open. */
  readonly failureCount: number
  readonly reason?: string
}

export interface KubernetesStatus {
  readonly namespaces: readonly NamespaceStatus[]
  /** Every namespace was listed at least once: the pool is complete, if perhaps out of date. */
  readonly isListed: boolean
  /** Every watch is open: what is known is the present. */
  readonly isLive: boolean
}

/** The state of every watched namespace, and who is told when one changes. */
export class NamespaceStatuses {
  readonly #statuses: Map<string, NamespaceStatus>
  readonly #onStatus: ((status: KubernetesStatus) => void) | undefined
  readonly #logger: Logger

  /** @param options.onStatus what it throws is logged */
  constructor(
    namespaces: readonly string[],
    options: {
      readonly onStatus?: ((status: KubernetesStatus) => void) | undefined
      readonly logger: Logger
    },
  ) {
    this.#onStatus = options.onStatus
    this.#logger = options.logger
    this.#statuses = new Map(
      namespaces.map((namespace) => [
        namespace,
        { namespace, state: 'idle', isListed: false, failureCount: 0 },
      ]),
    )
  }

  get current(): KubernetesStatus {
    const namespaces = [...this.#statuses.values()]
    return {
      namespaces,
      isListed: namespaces.every(({ isListed }) => isListed),
      isLive: namespaces.every(({ state }) => state === 'live'),
    }
  }

  /** Every namespace was listed, or has failed: there is nothing more to wait for. */
  get areSettled(): boolean {
    return [...this.#statuses.values()].every(({ isListed, failureCount }) => isListed || failureCount > 0)
  }

  begun(namespace: string): void {
    this.#change(namespace, (status) => ({ ...status, state: 'starting' }))
  }

  listed(namespace: string): void {
    this.#change(namespace, (status) => ({ ...status, isListed: true }))
  }

  live(namespace: string): void {
    this.#change(namespace, ({ isListed }) => ({ namespace, state: 'live', isListed, failureCount: 0 }))
  }

  failed(namespace: string, reason: string): void {
    this.#change(namespace, ({ isListed, failureCount }) => ({
      namespace,
      state: 'failing',
      isListed,
      failureCount: failureCount + 1,
      reason,
    }))
  }

  #change(namespace: string, next: (status: NamespaceStatus) => NamespaceStatus): void {
    const before = this.#statuses.get(namespace)
    if (!before) return
    const after = next(before)
    this.#statuses.set(namespace, after)
    const isNews =
      before.state !== after.state || before.isListed !== after.isListed || before.reason !== after.reason
    if (!isNews) return
    try {
      this.#onStatus?.(this.current)
    } catch (error) {
      this.#logger.error({ reason: String(error) }, 'a listener to the status has thrown')
    }
  }
}
