import { isDeepStrictEqual } from 'node:util'
import { entryId } from '../entry-board.js'
import { DiscoveryError, InvalidFleetOptionsError } from '../errors.js'
import { sleep } from '../ports/clock.js'
import type { FleetEntry, FleetEntryKind, Registration } from '../ports/discovery.js'
import { checkEntry } from '../records/wire-text.js'
import { annotationOf, toAnnotation } from './annotations.js'
import { PodAnnotation, type PodAnnotationOptions } from './pod-annotation.js'

export type PodRegistrationOptions = Omit<PodAnnotationOptions, 'annotation'> & {
  readonly deregisterTimeoutMs: number
}

/** A record on our own Pod, until it is taken over, lost, or given back. */
export class PodRegistration implements Registration {
  readonly kind: FleetEntryKind
  readonly id: string
  readonly lost: Promise<void>
  readonly #options: PodRegistrationOptions
  readonly #annotation: PodAnnotation
  readonly #onEnd: () => void
  #entry: FleetEntry
  readonly #text: string
  #isAlive = true
  #isForeign = false
  #resolveLost = () => {}
  #deregistering: Promise<void> | undefined

  /** @throws DiscoveryError `INFERA_FLEET_FULL` where the record is too large */
  constructor(entry: FleetEntry, options: PodRegistrationOptions, onEnd: () => void) {
    this.kind = entry.kind
    this.id = entryId(entry)
    this.#entry = entry
    this.#text = toAnnotation(entry)
    this.#options = options
    this.#onEnd = onEnd
    this.lost = new Promise((resolve) => {
      this.#resolveLost = resolve
    })
    this.#annotation = new PodAnnotation({ ...options, annotation: annotationOf[entry.kind] }, () => {
      this.#isForeign = true
      if (this.#end()) this.#resolveLost()
    })
  }

  /**
   * Resolves once the record is written, or another registration took it over.
   * @throws DiscoveryError, or the signal's reason; nothing is announced then
   */
  async start(signal: AbortSignal | undefined): Promise<void> {
    const written = this.#annotation.set(this.#text)
    await untilAborted(written, signal)
    if (signal?.aborted && !this.#annotation.isWritten) {
      // The write that was on its way may have arrived, so that it is taken back.
      await this.deregister()
      signal.throwIfAborted()
    }
    if (this.#isForeign) {
      throw new DiscoveryError(
        'INFERA_FLEET_READ_ONLY',
        `cannot register ${this.kind} '${this.id}': Pod '${this.#options.podName}' is another one now, without the uid of podUid`,
      )
    }
    if (this.#deregistering) {
      throw new DiscoveryError(
        'INFERA_FLEET_CLOSED',
        `cannot register ${this.kind} '${this.id}': discovery was closed`,
      )
    }
  }

  async update(record: FleetEntry['record']): Promise<void> {
    const entry = checkEntry({ kind: this.kind, record })
    if (entryId(entry) !== this.id) {
      throw new InvalidFleetOptionsError(
        `a registration keeps its id: it is '${this.id}', the new record says '${entryId(entry)}'`,
      )
    }
    if (this.#isAlive) await this.#put(entry)
  }

  async drain(): Promise<void> {
    if (!this.#isAlive || this.#entry.kind !== 'worker') return
    await this.#put({ kind: 'worker', record: { ...this.#entry.record, status: 'draining' } })
  }

  /** Never throws: a record that could not be taken away is logged, and leaves with its Pod. */
  deregister(): Promise<void> {
    this.#deregistering ??= this.#deregister()
    return this.#deregistering
  }

  async #deregister(): Promise<void> {
    if (!this.#end()) return
    const { clock, deregisterTimeoutMs, logger, podName } = this.#options
    const limit = new AbortController()
    await Promise.race([
      this.#annotation.set(null),
      sleep(clock, deregisterTimeoutMs, limit.signal).catch(() => {
        // The write came first.
      }),
    ])
    limit.abort()
    if (!this.#annotation.isWritten) {
      logger.error(
        { kind: this.kind, id: this.id, pod: podName, deregisterTimeoutMs },
        'record could not be taken away: it stays until its Pod is gone',
      )
    }
    await this.#annotation.stop()
  }

  /** Another registration takes the record over. Resolves when nothing of this one can be written any more. */
  async lose(): Promise<void> {
    if (!this.#end()) return
    await this.#annotation.finish()
    this.#resolveLost()
  }

  async #put(entry: FleetEntry): Promise<void> {
    if (isDeepStrictEqual(entry, this.#entry) && this.#annotation.isWritten) return
    const text = toAnnotation(entry)
    this.#entry = entry
    await this.#annotation.set(text)
  }

  #end(): boolean {
    if (!this.#isAlive) return false
    this.#isAlive = false
    this.#onEnd()
    return true
  }
}

/** Resolves with the promise, or when the signal aborts. */
async function untilAborted(promise: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  let onAbort = () => {}
  const aborted = new Promise<void>((resolve) => {
    onAbort = resolve
  })
  signal?.addEventListener('abort', onAbort, { once: true })
  await Promise.race([promise, aborted])
  signal?.removeEventListener('abort', onAbort)
}
