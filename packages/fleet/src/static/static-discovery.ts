import { z } from 'zod'
import { EmbeddedDiscovery, type EmbeddedRegistration } from '../embedded/embedded-discovery.js'
import { DiscoveryError } from '../errors.js'
import { bound, clockOption, durationMs, loggerOption, parseOptions, part, randomOption } from '../options.js'
import { sleep } from '../ports/clock.js'
import type { Discovery, FleetChange, FleetEntry, Registration } from '../ports/discovery.js'
import type { WorkerRecord } from '../records/worker-record.js'
import { type HealthProber, httpHealthProber } from './health-probe.js'
import { readWorkerList, type StaticWorker } from './worker-list.js'

const Options = z.strictObject({
  workers: z.array(z.custom<StaticWorker>((value) => typeof value === 'object' && value !== null)),
  /** Polling of `GET <url>/health`; without it every worker is always present. */
  health: z
    .strictObject({
      /** Between two polls of one worker, 10 % jitter included. */
      intervalMs: durationMs().default(5_000),
      /** A probe that takes longer counts as failed. */
      timeoutMs: durationMs().default(5_000),
      /** Failures in a row after which a present worker is removed. */
      failuresBeforeRemoval: bound().default(3),
    })
    .optional(),
  prober: part<HealthProber>('a HealthProber').default(() => httpHealthProber),
  /** Changes held for one watcher; one more and it gets a snapshot in their place. */
  watchBufferMax: bound().default(1024),
  clock: clockOption,
  random: randomOption,
  logger: loggerOption,
})
export type StaticDiscoveryOptions = z.input<typeof Options>
type HealthOptions = NonNullable<z.output<typeof Options>['health']>

/**
 * A fleet written down in advance. With `health` a worker is present from its first good probe until
 * `failuresBeforeRemoval` bad ones in a row, and again from the next good one.
 */
export class StaticDiscovery implements Discovery {
  readonly kind = 'static'
  readonly #options: z.output<typeof Options>
  readonly #board: EmbeddedDiscovery
  readonly #stop = new AbortController()
  readonly #polls: Promise<void>[] = []

  /**
   * Starts polling where `health` is given; `close` ends it.
   * @throws InvalidFleetOptionsError
   * @throws InvalidRecordError
   */
  constructor(options: StaticDiscoveryOptions) {
    this.#options = parseOptions('StaticDiscovery', Options, options)
    this.#board = new EmbeddedDiscovery({ watchBufferMax: this.#options.watchBufferMax })
    for (const record of readWorkerList(this.#options.workers)) {
      if (this.#options.health) this.#polls.push(this.#poll(record, this.#options.health))
      else this.#board.registerNow({ kind: 'worker', record })
    }
  }

  /**
   * Servers may announce themselves, to watchers of this process; workers may not.
   * @throws DiscoveryError `INFERA_FLEET_READ_ONLY` for a worker, `INFERA_FLEET_CLOSED` after `close`
   */
  async register(entry: FleetEntry, options: { signal?: AbortSignal } = {}): Promise<Registration> {
    if (entry.kind === 'worker') {
      throw new DiscoveryError(
        'INFERA_FLEET_READ_ONLY',
        `cannot register worker '${entry.record.worker_id}': static discovery lists its workers in the option 'workers'`,
      )
    }
    return this.#board.register(entry, options)
  }

  watch(options: { signal?: AbortSignal } = {}): AsyncIterable<FleetChange> {
    return this.#board.watch(options)
  }

  async close(): Promise<void> {
    this.#stop.abort(new DiscoveryError('INFERA_FLEET_CLOSED', 'discovery was closed'))
    await Promise.all(this.#polls)
    await this.#board.close()
  }

  async #poll(record: WorkerRecord, health: HealthOptions): Promise<void> {
    const { clock, random, logger } = this.#options
    const stopped = this.#stop.signal
    let present: EmbeddedRegistration | undefined
    let failures = 0
    while (!stopped.aborted) {
      const isWell = await this.#probe(record, health.timeoutMs)
      if (stopped.aborted) return
      failures = isWell ? 0 : failures + 1
      if (isWell && !present) {
        present = this.#board.registerNow({ kind: 'worker', record })
        logger.info({ workerId: record.worker_id }, 'static worker is well')
      } else if (present && failures >= health.failuresBeforeRemoval) {
        present.expire()
        present = undefined
        logger.warn({ workerId: record.worker_id, failures }, 'static worker fails its health probe: removed')
      }
      // Jitter keeps the probes of many workers from falling into step.
      await sleep(clock, health.intervalMs * (0.9 + 0.2 * random()), stopped).catch(() => {
        // Only an abort ends a sleep early, and the loop's condition sees it.
      })
    }
  }

  async #probe(record: WorkerRecord, timeoutMs: number): Promise<boolean> {
    const { prober, clock, logger } = this.#options
    const limit = new AbortController()
    const onStop = () => limit.abort(this.#stop.signal.reason)
    this.#stop.signal.addEventListener('abort', onStop, { once: true })
    const timer = clock.setTimer(timeoutMs, () => limit.abort(new Error(`no answer within ${timeoutMs} ms`)))
    const givenUp = new Promise<never>((_, reject) => {
      limit.signal.addEventListener('abort', () => reject(limit.signal.reason), { once: true })
    })
    try {
      return await Promise.race([prober(record, { signal: limit.signal }), givenUp])
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      logger.debug({ workerId: record.worker_id, reason }, 'health probe failed')
      return false
    } finally {
      timer.cancel()
      this.#stop.signal.removeEventListener('abort', onStop)
    }
  }
}
