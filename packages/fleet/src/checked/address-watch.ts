import { Backoff } from '../link/backoff.js'
import { untilAborted } from '../link/until-aborted.js'
import { type Clock, sleep } from '../ports/clock.js'
import type { Random } from '../ports/random.js'
import type { WorkerRecord } from '../records/worker-record.js'
import type { AddressProber } from './address-probe.js'
import type { WorkerProblem } from './worker-problem.js'

export interface ProbeOptions {
  /** A probe that takes longer counts as no answer. */
  readonly timeoutMs: number
  /** Pauses between probes of a worker that cannot be reached, doubling. */
  readonly retryFirstMs: number
  readonly retryMaxMs: number
  /** Between probes of a worker of which the registry says nothing at present. */
  readonly intervalMs: number
}

export interface AddressWatchOptions {
  readonly record: WorkerRecord
  readonly prober: AddressProber
  readonly probe: ProbeOptions
  /** Whether the registry's word alone is not enough now. */
  readonly isUnverified: () => boolean
  readonly clock: Clock
  readonly random: Random
  /** Told when what is in the way becomes another thing, or nothing. */
  readonly onChange: (problem: WorkerProblem | undefined) => void
}

/**
 * Asks one worker whether it can be reached: when it is new, until it can be reached when it cannot, and again and again while
 * the registry does not vouch for it. A worker that was reached is given a second chance before it counts as gone.
 */
export class AddressWatch {
  readonly #options: AddressWatchOptions
  readonly #stop = new AbortController()
  readonly #running: Promise<void>
  #wake = () => {}

  constructor(options: AddressWatchOptions) {
    this.#options = options
    this.#running = this.#run()
  }

  /** The registry's word counts for more or less than before. */
  reconsider(): void {
    this.#wake()
  }

  async stop(): Promise<void> {
    this.#stop.abort(new Error('the worker is gone'))
    this.#wake()
    await this.#running
  }

  async #run(): Promise<void> {
    const { probe, random, clock, isUnverified, onChange } = this.#options
    const stopped = this.#stop.signal
    const backoff = new Backoff({ firstMs: probe.retryFirstMs, maxMs: probe.retryMaxMs, random })
    let told: WorkerProblem | undefined
    let wasReached = false
    let failures = 0
    while (!stopped.aborted) {
      const problem = await this.#probe()
      if (stopped.aborted) return
      failures = problem ? failures + 1 : 0
      if (!problem) {
        wasReached = true
        backoff.reset()
      }
      const isCertain = !problem || !wasReached || failures > 1
      if (isCertain && problem?.message !== told?.message) {
        told = problem
        onChange(problem)
      }
      if (problem) await this.#pause(sleep(clock, backoff.nextDelayMs(), stopped))
      else if (isUnverified())
        await this.#pause(sleep(clock, probe.intervalMs * (0.9 + 0.2 * random()), stopped))
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      }
    }
  }

  async #pause(pause: Promise<void>): Promise<void> {
    await pause.catch(() => {
      // Only an abort ends it early, and the loop's condition sees it.
    })
  }

  async #probe(): Promise<WorkerProblem | undefined> {
    const { prober, record, clock, probe } = this.#options
    const limit = new AbortController()
    const onStop = () => limit.abort(this.#stop.signal.reason)
    this.#stop.signal.addEventListener('abort', onStop, { once: true })
    const timer = clock.setTimer(probe.timeoutMs, () => limit.abort(new Error('no answer in time')))
    try {
      return await untilAborted(prober(record, { signal: limit.signal }), limit.signal)
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      return {
        code: 'address_timeout',
        message: `${record.url} cannot be reached: ${why} (${probe.timeoutMs} ms)`,
        effect: 'unroutable',
      }
    } finally {
      timer.cancel()
      this.#stop.signal.removeEventListener('abort', onStop)
    }
  }
}
