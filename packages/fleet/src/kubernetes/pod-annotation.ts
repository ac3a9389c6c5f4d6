import { Backoff } from '../link/backoff.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import type { ApiConnection } from './api-connection.js'
import { ApiError, explainApiError } from './api-error.js'

export interface PodAnnotationOptions {
  readonly api: ApiConnection
  readonly annotation: string
  readonly namespace: string
  readonly podName: string
  /** With it, a write meets only this very Pod and never its successor under the same name. */
  readonly podUid: string | undefined
  readonly refreshIntervalMs: number
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
}

interface Waiter {
  readonly revision: number
  resolve(): void
}

/** What a writer was made to want; a later wish replaces one that was not written yet. */
type Wish = { readonly value: string | null; readonly revision: number }

/**
 * One annotation of our own Pod, brought to what is wanted of it: one write at a time, so that none overtakes a later one,
 * again after a growing pause where it failed, and again at intervals, in case something took it away.
 */
export class PodAnnotation {
  readonly #options: PodAnnotationOptions
  readonly #backoff: Backoff
  readonly #stop = new AbortController()
  readonly #onForeign: () => void
  #wish: Wish = { value: null, revision: 0 }
  #writtenRevision = 0
  #isFinished = false
  #writing: Promise<void> | undefined
  #timer: Timer | undefined
  #waiters: Waiter[] = []

  /** @param onForeign the Pod of that name is another one now; nothing is written any more */
  constructor(options: PodAnnotationOptions, onForeign: () => void) {
    this.#options = options
    this.#onForeign = onForeign
    this.#backoff = new Backoff({ ...options.backoff, random: options.random })
  }

  /** Resolves once `value`, or something wanted later, is written, or `stop` was called; null removes the annotation. */
  set(value: string | null): Promise<void> {
    this.#wish = { value, revision: this.#wish.revision + 1 }
    const { revision } = this.#wish
    this.#backoff.reset()
    this.#write()
    return new Promise((resolve) => {
      if (this.#isFinished) resolve()
      else this.#waiters.push({ revision, resolve })
    })
  }

  /** Whether the latest wish is written. */
  get isWritten(): boolean {
    return this.#writtenRevision === this.#wish.revision
  }

  /** Gives up what was not written, a write on its way included. Idempotent. */
  async stop(): Promise<void> {
    this.#stop.abort(new Error('the registration has ended'))
    await this.finish()
  }

  /** Begins no further write, and resolves when one on its way has come to its end. Idempotent. */
  async finish(): Promise<void> {
    this.#isFinished = true
    this.#timer?.cancel()
    await this.#writing
    this.#settle(Infinity)
  }

  #write(): void {
    if (this.#writing || this.#isFinished) return
    this.#timer?.cancel()
    this.#writing = this.#patch(this.#wish).then((delayMs) => {
      this.#writing = undefined
      if (this.#isFinished || delayMs === undefined) return
      // What was wanted meanwhile is written at once.
      if (delayMs === 0) this.#write()
      else this.#timer = this.#options.clock.setTimer(delayMs, () => this.#write())
    })
  }

  /** @returns the pause before the next write, ms; undefined: none is needed */
  async #patch(wish: Wish): Promise<number | undefined> {
    const { api, annotation, namespace, podName, podUid, logger, random, refreshIntervalMs } = this.#options
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(podName)}`
    const metadata = { ...(podUid ? { uid: podUid } : {}), annotations: { [annotation]: wish.value } }
    try {
      await api.json(
        {
          method: 'PATCH',
          path,
          contentType: 'application/merge-patch+json',
          body: JSON.stringify({ metadata }),
        },
        this.#stop.signal,
      )
    } catch (error) {
      if (this.#stop.signal.aborted) return undefined
      const reason = explainApiError(error)
      const fields = { pod: `${namespace}/${podName}`, annotation, reason }
      if (podUid !== undefined && error instanceof ApiError && error.status === 409) {
        logger.error(fields, 'another Pod has this name now: nothing is announced any more')
        this.#isFinished = true
        this.#settle(Infinity)
        this.#onForeign()
        return undefined
      }
      logger.warn(fields, 'annotation could not be written: trying again')
      const askedMs = (error instanceof ApiError && error.retryAfterMs) || 0
      const delayMs = Math.max(this.#backoff.nextDelayMs(), Math.min(askedMs, this.#options.backoff.maxMs))
      return wish === this.#wish ? delayMs : 0
    }
    this.#backoff.reset()
    this.#writtenRevision = wish.revision
    this.#settle(wish.revision)
    if (wish !== this.#wish) return 0
    // Chance keeps the refreshes of many Pods from falling into step. What is gone needs none.
    return wish.value === null ? undefined : refreshIntervalMs * (0.9 + 0.1 * random())
  }

  #settle(revision: number): void {
    const waiting = this.#waiters
    this.#waiters = waiting.filter((waiter) => waiter.revision > revision)
    for (const waiter of waiting) if (waiter.revision <= revision) waiter.resolve()
  }
}
