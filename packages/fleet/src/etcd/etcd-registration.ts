import { isDeepStrictEqual } from 'node:util'
import type { Etcd3 } from 'etcd3'
import { entryId } from '../entry-board.js'
import { DiscoveryError, InvalidFleetOptionsError } from '../errors.js'
import { Backoff } from '../link/backoff.js'
import { untilAborted } from '../link/until-aborted.js'
import { type Clock, sleep } from '../ports/clock.js'
import type { FleetEntry, FleetEntryKind, Registration } from '../ports/discovery.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import { checkEntry, toWireText } from '../records/wire-text.js'
import { reasonOf } from './etcd-client.js'
import type { LeaseKeeper } from './lease-keeper.js'
import { RecordKey } from './record-key.js'

export interface EtcdRegistrationOptions {
  readonly client: () => Etcd3
  readonly keeper: LeaseKeeper
  readonly key: Buffer
  readonly leaseTtlSeconds: number
  /** Between two keep-alives. */
  readonly heartbeatMs: number
  readonly deregisterTimeoutMs: number
  readonly recordBytesMax: number
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
  /** Nothing is announced any more; its lease may still have to go. */
  onEnd(): void
  /** Nothing of it is under way any more. */
  onLeft(): void
}

interface Waiter {
  readonly revision: number
  resolve(): void
}

/**
 * A record under a lease of its own, kept alive and put again whenever it was lost, until another process takes the key over or it
 * is given back. What is wanted of it is written as soon as etcd lets us; one write at a time, so that none overtakes a later one.
 */
export class EtcdRegistration implements Registration {
  readonly kind: FleetEntryKind
  readonly id: string
  readonly lost: Promise<void>
  readonly #options: EtcdRegistrationOptions
  readonly #key: RecordKey
  readonly #stop = new AbortController()
  readonly #running: Promise<void>
  #entry: FleetEntry
  /** Counts what was wanted; `#written` says how much of that stands in etcd. */
  #wanted = 1
  #written = 0
  #waiters: Waiter[] = []
  #leaseId: string | undefined
  #isAlive = true
  #wasGivenBack = false
  #wake = () => {}
  #resolveLost = () => {}
  #leaving: Promise<void> | undefined

  /** @throws DiscoveryError `INFERA_FLEET_FULL` where the record is too large */
  constructor(entry: FleetEntry, options: EtcdRegistrationOptions) {
    this.kind = entry.kind
    this.id = entryId(entry)
    this.#options = options
    this.#key = new RecordKey(options)
    this.#entry = entry
    this.#valueOf(entry)
    this.lost = new Promise((resolve) => {
      this.#resolveLost = resolve
    })
    this.#running = this.#run()
  }

  /** Resolves once what is wanted now stands in etcd, or never will; does not reject. */
  get settled(): Promise<void> {
    return this.#writtenTo(this.#wanted)
  }

  /**
   * Resolves once the record stands in etcd, or another registration took it over.
   * @throws the signal's reason, DiscoveryError; nothing is announced then
   */
  async start(signal: AbortSignal | undefined): Promise<void> {
    const onAbort = () => void this.deregister()
    signal?.addEventListener('abort', onAbort, { once: true })
    await this.settled
    signal?.removeEventListener('abort', onAbort)
    if (!this.#wasGivenBack) return
    await this.#leaving
    signal?.throwIfAborted()
    throw new DiscoveryError(
      'INFERA_FLEET_CLOSED',
      `cannot register ${this.kind} '${this.id}': discovery was closed`,
    )
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

  /** Never throws: a record that could not be taken away is logged, and goes with its lease. */
  deregister(): Promise<void> {
    if (this.#end()) {
      this.#wasGivenBack = true
      this.#leaving = this.#leave()
    }
    return this.#leaving ?? Promise.resolve()
  }

  /**
   * Another registration of this process takes the record over: nothing of this one can be written over it any more.
   * @param written when the record stands under the other's lease, ours goes; it would take the record along before
   */
  lose(written: Promise<void>): void {
    if (!this.#end()) return
    this.#resolveLost()
    this.#leaving = written.then(() => this.#leave())
  }

  /** With our lease nothing goes that is not ours: a key that was put under another lease has left this one. */
  async #leave(): Promise<void> {
    const { clock, deregisterTimeoutMs, logger, leaseTtlSeconds, onLeft } = this.#options
    const limit = new AbortController()
    const timer = clock.setTimer(deregisterTimeoutMs, () =>
      limit.abort(new Error(`no answer of etcd within ${deregisterTimeoutMs} ms`)),
    )
    const reason = await this.#revoke(limit.signal)
    if (reason !== undefined && this.#wasGivenBack) {
      logger.warn(
        { kind: this.kind, id: this.id, reason, leaseTtlSeconds },
        'record could not be taken away: it stays until its lease has run out',
      )
    }
    await untilAborted(this.#running, limit.signal).catch(() => {
      // What is under way holds a lease that is gone or runs out: it can announce nothing for longer.
    })
    timer.cancel()
    onLeft()
  }

  /** Tries until the signal aborts. @returns why it did not work */
  async #revoke(signal: AbortSignal): Promise<string | undefined> {
    const { client, clock, random, backoff: pauses } = this.#options
    const ID = this.#leaseId
    if (ID === undefined) return undefined
    const backoff = new Backoff({ ...pauses, random })
    for (let reason: string | undefined; ; ) {
      try {
        await untilAborted(client().leaseClient.leaseRevoke({ ID }), signal)
        return undefined
      } catch (error) {
        // A lease that is gone took its keys along.
        if (/lease not found/.test(reasonOf(error))) return undefined
        // That time is over says less than what went wrong before.
        if (!signal.aborted) reason = reasonOf(error)
        reason ??= reasonOf(error)
      }
      const hasTime = await sleep(clock, backoff.nextDelayMs(), signal).then(
        () => true,
        () => false,
      )
      if (!hasTime) return reason
    }
  }

  async #run(): Promise<void> {
    const { clock, random, heartbeatMs, backoff: pauses, logger } = this.#options
    const stopped = this.#stop.signal
    const backoff = new Backoff({ ...pauses, random })
    let isFailing = false
    while (!stopped.aborted) {
      let delayMs = heartbeatMs
      try {
        await this.#settle()
        if (isFailing && this.#isAlive) logger.info({ kind: this.kind, id: this.id }, 'record is kept again')
        isFailing = false
        backoff.reset()
      } catch (error) {
        const fields = { kind: this.kind, id: this.id, reason: reasonOf(error) }
        if (!isFailing && this.#isAlive) logger.warn(fields, 'record cannot be kept in etcd: trying on')
        isFailing = true
        delayMs = Math.min(heartbeatMs, backoff.nextDelayMs())
      }
      if (stopped.aborted || (this.#written < this.#wanted && !isFailing)) continue
      const waking = new AbortController()
      this.#wake = () => waking.abort()
      await sleep(clock, delayMs, waking.signal).catch(() => {
        // Woken, perhaps to end: the loop's condition sees which.
      })
    }
  }

  /** Once round: a lease that lives, and the record under it as it is wanted. */
  async #settle(): Promise<void> {
    const leaseId = await this.#lease()
    if (leaseId === undefined || !this.#isAlive) return
    const revision = this.#wanted
    const value = this.#valueOf(this.#entry)
    const isNew = this.#written < revision
    if (!isNew && (await this.#key.holds(value, leaseId))) return
    if (!this.#isAlive) return
    if (await this.#key.put(value, leaseId)) {
      this.#written = revision
      this.#tell()
    } else this.#yield()
  }

  /** Our lease, extended, or another one where it is gone. */
  async #lease(): Promise<string | undefined> {
    const { client, keeper, leaseTtlSeconds, logger } = this.#options
    if (this.#leaseId !== undefined) {
      if ((await keeper.keepAlive(this.#leaseId)) > 0) return this.#leaseId
      if (!this.#isAlive) return undefined
      logger.warn({ kind: this.kind, id: this.id }, 'the lease of a record was lost: taking another')
      this.#leaseId = undefined
    }
    const { ID } = await client().leaseClient.leaseGrant({ TTL: leaseTtlSeconds })
    // Known before it is used: what may have arrived has to be taken back with it.
    if (this.#isAlive) this.#leaseId = String(ID)
    return this.#leaseId
  }

  /** Somebody else has the key: we leave it alone. */
  #yield(): void {
    if (!this.#end()) return
    this.#options.logger.error(
      { kind: this.kind, id: this.id },
      'another process announces itself under this id: ours is not announced any more',
    )
    this.#resolveLost()
    this.#leaving = this.#leave()
  }

  async #put(entry: FleetEntry): Promise<void> {
    if (isDeepStrictEqual(entry, this.#entry)) return this.settled
    this.#valueOf(entry)
    this.#entry = entry
    this.#wanted += 1
    this.#wake()
    return this.settled
  }

  #writtenTo(revision: number): Promise<void> {
    if (!this.#isAlive || this.#written >= revision) return Promise.resolve()
    return new Promise((resolve) => this.#waiters.push({ revision, resolve }))
  }

  #tell(): void {
    const waiting = this.#waiters
    const isDone = ({ revision }: Waiter) => !this.#isAlive || this.#written >= revision
    this.#waiters = waiting.filter((waiter) => !isDone(waiter))
    for (const waiter of waiting) if (isDone(waiter)) waiter.resolve()
  }

  /** @throws DiscoveryError where no key holds that much */
  #valueOf(entry: FleetEntry): Buffer {
    const { recordBytesMax } = this.#options
    const value = Buffer.from(toWireText(entry))
    if (value.byteLength <= recordBytesMax) return value
    throw new DiscoveryError(
      'INFERA_FLEET_FULL',
      `the ${entry.kind} record takes ${value.byteLength} bytes; a record may take ${recordBytesMax}: shorten it, or raise recordBytesMax`,
    )
  }

  #end(): boolean {
    if (!this.#isAlive) return false
    this.#isAlive = false
    this.#stop.abort(new Error('the registration has ended'))
    this.#wake()
    this.#tell()
    this.#options.onEnd()
    return true
  }
}
