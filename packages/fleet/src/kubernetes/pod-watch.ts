import { z } from 'zod'
import { Backoff } from '../link/backoff.js'
import { type Clock, sleep } from '../ports/clock.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import type { ApiConnection, ApiRequest } from './api-connection.js'
import { ApiError, ApiFormatError, explainApiError, isExpired } from './api-error.js'
import { type Pod, readPod } from './pod.js'
import { LineSplitter, readWatchEvent, type WatchEvent } from './watch-events.js'

export interface PodWatchOptions {
  readonly api: ApiConnection
  readonly namespace: string
  readonly labelSelector: string
  readonly pageLimit: number
  /** What the server is asked to end a watch after, s; one that outlives it by `requestTimeoutMs` is given up. */
  readonly watchTimeoutSeconds: number
  readonly requestTimeoutMs: number
  readonly lineMaxBytes: number
  readonly podsMax: number
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
}

/** What the watch of one namespace tells, in order. A list is the whole truth at its moment. */
export interface PodWatchEvents {
  onList(pods: readonly Pod[]): void
  onEvent(event: WatchEvent): void
  /** The server has accepted a watch: what it brings is the present. */
  onOpen(): void
  /** Once for every list or watch that failed. */
  onFailure(reason: string): void
}

const ListPage = z.object({
  metadata: z.object({ resourceVersion: z.string().min(1), continue: z.string().optional() }),
  items: z.array(z.unknown()).nullish(),
})

type Outcome =
  | { readonly type: 'ended' | 'expired' }
  | { readonly type: 'failed'; readonly retryAfterMs: number }

/** A watch that lived this long, ms, was no failure, even if nothing happened. */
const soundLifeMs = 1_000

/**
 * Follows the Pods of one namespace for ever: a list, then watches that each begin where the one before ended. Whatever
 * breaks costs a pause and a new list; what was told before stays true until that list says otherwise.
 */
export class PodWatch {
  readonly #options: PodWatchOptions
  readonly #events: PodWatchEvents
  readonly #backoff: Backoff
  /** Where the next watch begins; undefined: a list is needed first. */
  #version: string | undefined
  /** Whether the last watch brought something to its proper end, or lived long enough. */
  #wasSound = false

  constructor(options: PodWatchOptions, events: PodWatchEvents) {
    this.#options = options
    this.#events = events
    this.#backoff = new Backoff({ ...options.backoff, random: options.random })
  }

  /** Runs until the signal aborts; never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    // A first short watch is no reason to wait: an idle one may have expired, or its server is going. A second one is.
    let isSuspect = false
    while (!signal.aborted) {
      const outcome = await this.#attempt(signal)
      if (this.#wasSound) {
        isSuspect = false
        this.#backoff.reset()
      }
      if (outcome.type === 'ended' && this.#wasSound) continue
      if (outcome.type !== 'failed' && !isSuspect) isSuspect = true
      else await this.#pause(outcome.type === 'failed' ? outcome.retryAfterMs : 0, signal)
    }
  }

  async #attempt(signal: AbortSignal): Promise<Outcome> {
    const { clock } = this.#options
    let openedAtMs = Infinity
    let hasProgress = false
    const onOpen = () => {
      openedAtMs = clock.now()
      this.#events.onOpen()
    }
    const onEvent = (event: WatchEvent) => {
      this.#events.onEvent(event)
      this.#version = event.version || this.#version
      hasProgress = true
    }
    const wasLong = () => clock.now() - openedAtMs >= soundLifeMs
    try {
      this.#version ??= await this.#list(signal)
      await this.#watch(this.#version, signal, { onOpen, onEvent })
      this.#wasSound = hasProgress || wasLong()
      return { type: 'ended' }
    } catch (error) {
      this.#wasSound = wasLong()
      this.#version = undefined
      if (signal.aborted) return { type: 'ended' }
      const reason = explainApiError(error)
      if (isExpired(error)) {
        this.#log('debug', reason, 'watch has expired: listing again')
        return { type: 'expired' }
      }
      this.#log('warn', reason, 'Kubernetes watch failed: what is known stays')
      this.#events.onFailure(reason)
      return { type: 'failed', retryAfterMs: (error instanceof ApiError && error.retryAfterMs) || 0 }
    }
  }

  async #pause(retryAfterMs: number, signal: AbortSignal): Promise<void> {
    const delayMs = Math.max(this.#backoff.nextDelayMs(), retryAfterMs)
    await sleep(this.#options.clock, Math.min(delayMs, this.#options.backoff.maxMs), signal).catch(() => {
      // Only an abort ends a sleep early, and the loop's condition sees it.
    })
  }

  /** @returns the version to watch from */
  async #list(signal: AbortSignal): Promise<string> {
    const pods: Pod[] = []
    let limit: number | undefined = this.#options.pageLimit
    let token: string | undefined
    for (;;) {
      let page: z.output<typeof ListPage>
      try {
        page = await this.#listPage(limit, token, signal)
      } catch (error) {
        if (!isExpired(error) || limit === undefined) throw error
        // Its pages were outlived by the changes: all in one answer cannot be.
        limit = undefined
        token = undefined
        pods.length = 0
        continue
      }
      for (const item of page.items ?? []) {
        const pod = readPod(item)
        if (pod) pods.push(pod)
        else this.#log('warn', 'it has no name', 'Kubernetes lists something that is no Pod')
      }
      if (pods.length > this.#options.podsMax) {
        throw new ApiFormatError(
          `the selector '${this.#options.labelSelector}' takes more than podsMax (${this.#options.podsMax}) Pods: narrow it, or raise podsMax`,
        )
      }
      token = page.metadata.continue || undefined
      if (token !== undefined) continue
      this.#events.onList(pods)
      return page.metadata.resourceVersion
    }
  }

  async #listPage(limit: number | undefined, token: string | undefined, signal: AbortSignal) {
    const query = { labelSelector: this.#options.labelSelector, limit, continue: token }
    const page = ListPage.safeParse(
      await this.#options.api.json({ method: 'GET', path: this.#path, query }, signal),
    )
    if (!page.success) throw new ApiFormatError('an answer of the API server is no list of Pods')
    return page.data
  }

  /** Watches until the server ends it. */
  async #watch(
    fromVersion: string,
    signal: AbortSignal,
    tell: { readonly onOpen: () => void; readonly onEvent: (event: WatchEvent) => void },
  ): Promise<void> {
    const { api, clock, requestTimeoutMs, watchTimeoutSeconds, labelSelector, lineMaxBytes } = this.#options
    const limitMs = watchTimeoutSeconds * 1000 + requestTimeoutMs
    const own = new AbortController()
    const onAbort = () => own.abort(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    const timer = clock.setTimer(limitMs, () =>
      own.abort(new Error(`the watch did not end after ${limitMs} ms, as it was asked to`)),
    )
    const query = {
      labelSelector,
      watch: 'true',
      allowWatchBookmarks: 'true',
      resourceVersion: fromVersion,
      timeoutSeconds: watchTimeoutSeconds,
    }
    const lines = new LineSplitter(lineMaxBytes)
    const request: ApiRequest = { method: 'GET', path: this.#path, query }
    try {
      for await (const chunk of api.stream(request, own.signal, tell.onOpen)) {
        for (const line of lines.push(chunk)) tell.onEvent(readWatchEvent(line))
      }
    } finally {
      timer.cancel()
      signal.removeEventListener('abort', onAbort)
    }
  }

  get #path(): string {
    return `/api/v1/namespaces/${encodeURIComponent(this.#options.namespace)}/pods`
  }

  #log(level: 'debug' | 'warn', reason: string, message: string): void {
    this.#options.logger[level]({ namespace: this.#options.namespace, reason }, message)
  }
}
