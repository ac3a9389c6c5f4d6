import type { Etcd3 } from 'etcd3'
import { Backoff } from '../link/backoff.js'
import { untilAborted } from '../link/until-aborted.js'
import { type Clock, sleep } from '../ports/clock.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import { type KeyValue, reasonOf } from './etcd-client.js'
import { rangeEndOf } from './keys.js'
import { type Ending, watchKeys } from './watch-stream.js'

export interface KeyWatchOptions {
  readonly client: () => Etcd3
  readonly prefix: string
  /** Keys of one answer. */
  readonly pageLimit: number
  readonly keysMax: number
  /** A watch of which nothing was heard for so long is begun anew with a list. */
  readonly livenessMs: number
  /** How often etcd is asked whether it is there. */
  readonly pingIntervalMs: number
  readonly requestTimeoutMs: number
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
}

export interface KeyWatchEvents {
  /** All keys of one moment. @param isOtherHistory it is not that of the last one: etcd has lost data, or is another one */
  onList(keys: readonly KeyValue[], isOtherHistory: boolean): void
  onPut(key: KeyValue): void
  onDelete(key: Buffer): void
  /** What is known is the present. */
  onLive(): void
  /** What is known may be out of date. */
  onFailure(reason: string): void
}

interface History {
  readonly cluster: string
  readonly revision: bigint
}

/** The keys under a prefix: listed, then watched from the revision after, and listed again after whatever went wrong. */
export class KeyWatch {
  readonly #options: KeyWatchOptions
  readonly #events: KeyWatchEvents
  #history: History | undefined

  constructor(options: KeyWatchOptions, events: KeyWatchEvents) {
    this.#options = options
    this.#events = events
  }

  /** Resolves when the signal aborts; never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, random, backoff: pauses, logger, prefix } = this.#options
    const backoff = new Backoff({ ...pauses, random })
    while (!signal.aborted) {
      try {
        const revision = await this.#list(signal)
        const ending = await this.#watch(revision, signal, () => backoff.reset())
        if (signal.aborted) return
        logger.debug({ prefix, ending: ending.reason }, 'the watch of etcd has ended: listing again')
        if (ending.isFailure) this.#events.onFailure(ending.reason)
      } catch (error) {
        if (signal.aborted) return
        this.#events.onFailure(reasonOf(error))
      }
      await sleep(clock, backoff.nextDelayMs(), signal).catch(() => {
        // Only an abort ends a sleep early, and the loop's condition sees it.
      })
    }
  }

  /** @returns the revision of the list */
  async #list(signal: AbortSignal): Promise<string> {
    const { client, prefix, pageLimit, keysMax } = this.#options
    const end = rangeEndOf(prefix)
    const keys: KeyValue[] = []
    let from = Buffer.from(prefix)
    let header: { revision: string; cluster_id: string } | undefined
    for (;;) {
      const request = {
        key: from,
        range_end: end,
        limit: pageLimit,
        ...(header ? { revision: header.revision } : {}),
      }
      const page = await this.#within(client().kv.range(request), signal)
      // Later pages are of the moment of the first.
      header ??= page.header
      keys.push(...page.kvs)
      if (keys.length > keysMax) {
        throw new Error(
          `more than ${keysMax} keys begin with ${prefix}: raise entriesMax, or give the fleet a prefix of its own`,
        )
      }
      const last = page.kvs.at(-1)
      if (!page.more || !last) break
      from = Buffer.concat([last.key, Buffer.of(0)])
    }
    const history = { cluster: header.cluster_id, revision: BigInt(header.revision) }
    const before = this.#history
    const isOther =
      before !== undefined && (before.cluster !== history.cluster || before.revision > history.revision)
    this.#history = history
    this.#events.onList(keys, isOther)
    return header.revision
  }

  /** Watches until something ends it. @throws when etcd cannot be asked for it */
  async #watch(revision: string, signal: AbortSignal, onOpen: () => void): Promise<Ending> {
    const { client, prefix } = this.#options
    const opening = client().watchClient.watch()
    // One that comes when nobody waits any more would stay open.
    opening.then(
      (stream) => signal.aborted && stream.cancel(),
      () => {},
    )
    const stream = await this.#within(opening, signal)
    const from = (BigInt(revision) + 1n).toString()
    const range = { key: Buffer.from(prefix), range_end: rangeEndOf(prefix), start_revision: from }
    return watchKeys(stream, range, this.#options, signal, {
      ping: () => this.#ping(signal),
      onOpen: () => {
        onOpen()
        this.#events.onLive()
      },
      onResponse: ({ header, events }) => {
        this.#history = { cluster: header.cluster_id, revision: BigInt(header.revision) }
        for (const { type, kv } of events) {
          if (type === 'Delete') this.#events.onDelete(kv.key)
          else this.#events.onPut(kv)
        }
      },
    })
  }

  /** A watch is silent while nothing happens, and while etcd cannot decide anything: an answer tells one from the other. */
  async #ping(signal: AbortSignal): Promise<void> {
    const key = Buffer.from(this.#options.prefix)
    await this.#within(this.#options.client().kv.range({ key, count_only: true }), signal)
  }

  /** @throws when there is no answer in time, or the signal aborts */
  async #within<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
    const { clock, requestTimeoutMs } = this.#options
    const limit = new AbortController()
    const onAbort = () => limit.abort(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    const timer = clock.setTimer(requestTimeoutMs, () =>
      limit.abort(new Error(`no answer of etcd within ${requestTimeoutMs} ms`)),
    )
    try {
      return await untilAborted(answer, limit.signal)
    } finally {
      timer.cancel()
      signal.removeEventListener('abort', onAbort)
    }
  }
}
