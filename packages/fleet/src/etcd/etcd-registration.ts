import { isDeepStrictEqual } from 'node:util'
import type { Etcd3 } from 'etcd3'
import { entryId } from '../entry-board.js'
import { DiscoveryError, InvalidFleetOptionsError } from '../errors.js'
import { Backoff } from '../link/backoff.js'
import { type Clock, sleep } from '../ports/clock.js'
import type { FleetEntry, FleetEntryKind, Registration } from '../ports/discovery.js'
import type { Logger } from '../ports/logger.js'
import type { Random } from '../ports/random.js'
import { checkEntry, toWireText } from '../records/wire-text.js'
import { reasonOf } from './etcd-client.js'
import type { LeaseKeeper } from './lease-keeper.js'

export interface EtcdRegistrationOptions {
  readonly client: () => Etcd3
  readonly keeper: LeaseKeeper
  readonly key: Buffer
  /** What has to end before the first write: another registration of this id in this process. */
  readonly after: Promise<void> | undefined
  readonly leaseTtlSeconds: number
  /** Between two keep-alives. */
  readonly heartbeatMs: number
  readonly deregisterTimeoutMs: number
  readonly recordBytesMax: number
  readonly backoff: { readonly firstMs: number; readonly maxMs: number }
  readonly clock: Clock
  readonly random: Random
  readonly logger: Logger
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
  readonly #stop = new AbortController()
  readonly #onEnd: () => void
  readonly #running: Promise<void>
  #entry: FleetEntry
  /** Counts what was wanted; `#written` says how much of that stands in etcd. */
  #wanted = 1
  #written = 0
  #waiters: Waiter[] = []
  #leaseId: string | undefined
  /** Whether the key was ever ours: the first write takes it over from whoever has it, a later one does not. */
  #hasHeld = false
  #isAlive = true
  #wake = () => {}
  #resolveLost = () => {}
  #deregistering: Promise<void> | undefined

  /** @throws DiscoveryError `INFERA_FLEET_FULL` where the record is too large */
  constructor(entry: FleetEntry, options: EtcdRegistrationOptions, onEnd: () => void) {
    this.kind = entry.kind
    this.id = entryId(entry)
    this.#options = options
    this.#entry = entry
    this.#textOf(entry)
    this.#onEnd = onEnd
    this.lost = new Promise((resolve) => {
      this.#resolveLost = resolve
    })
    this.#running = this.#run()
  }

  /**
   * Resolves once the record stands in etcd, or another registration took it over.
   * @throws the signal's reason, DiscoveryError; nothing is announced then
   */
  async start(signal: AbortSignal | undefined): Promise<void> {
    const onAbort = () => void this.deregister()
    signal?.addEventListener('abort', onAbort, { once: true })
    await this.#writtenTo(this.#wanted)
    signal?.removeEventListener('abort', onAbort)
    if (this.#hasHeld) return
    await this.#deregistering
    signal?.throwIfAborted()
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

  /** Never throws: a record that could not be taken away is logged, and goes with its lease. */
  deregister(): Promise<void> {
    this.#deregistering ??= this.#deregister()
    return this.#deregistering
  }

  /** Another registration takes the record over. Resolves when nothing of this one can be written any more. */
  async lose(): Promise<void> {
    if (!this.#end()) return
    await this.#running
    // With our lease nothing goes that is not ours: a key put again under another lease has left this one.
    await this.#revoke()
    this.#resolveLost()
  }

  async #deregister(): Promise<void> {
    if (!this.#end()) return
    const { logger, leaseTtlSeconds } = this.#options
    await this.#running
    const reason = await this.#revoke()
    if (reason === undefined) return
    logger.warn(
      { kind: this.kind, id: this.id, reason, leaseTtlSeconds },
      'record could not be taken away: it stays until its lease has run out',
    )
  }

  /** @returns why it did not work */
  async #revoke(): Promise<string | undefined> {
    const leaseId = this.#leaseId
    if (leaseId === undefined) return undefined
    const { client, clock, deregisterTimeoutMs } = this.#options
    const limit = new AbortController()
    try {
      const revoked = client()
        .leaseClient.leaseRevoke({ ID: leaseId }, { deadline: Date.now() + deregisterTimeoutMs })
        .then(() => undefined)
      const late = sleep(clock, deregisterTimeoutMs, limit.signal).then(
        () => `no answer within ${deregisterTimeoutMs} ms`,
        () => undefined,
      )
      return await Promise.race([revoked, late])
    } catch (error) {
      // A lease that is gone took its keys along.
      return /lease not found/.test(reasonOf(error)) ? undefined : reasonOf(error)
    } finally {
      limit.abort()
    }
  }

  async #run(): Promise<void> {
    const { clock, random, heartbeatMs, backoff: pauses, logger } = this.#options
    const stopped = this.#stop.signal
    const backoff = new Backoff({ ...pauses, random })
    let hasWarned = false
    await this.#options.after
    while (!stopped.aborted) {
      let delayMs = heartbeatMs
      try {
        await this.#settle()
        hasWarned = false
        backoff.reset()
      } catch (error) {
        const fields = { kind: this.kind, id: this.id, reason: reasonOf(error) }
        if (!hasWarned) logger.warn(fields, 'record cannot be kept in etcd: trying on')
        hasWarned = true
        delayMs = Math.min(heartbeatMs, backoff.nextDelayMs())
      }
      if (stopped.aborted || (this.#isAlive && this.#written < this.#wanted && delayMs === heartbeatMs))
        continue
      const waking = new AbortController()
      this.#wake = () => waking.abort()
      await sleep(clock, delayMs, AbortSignal.any([stopped, waking.signal])).catch(() => {
        // Woken or stopped: the loop's condition sees which.
      })
    }
  }

  /** Once round: a lease that lives, and the record under it as it is wanted. */
  async #settle(): Promise<void> {
    const { client, keeper, key, logger } = this.#options
    if (this.#leaseId !== undefined && (await keeper.keepAlive(this.#leaseId)) <= 0) {
      logger.warn({ kind: this.kind, id: this.id }, 'the lease of a record was lost: taking another')
      // Kept until the next one stands: the key may still be there under it.
      await this.#write(await this.#grant(), this.#leaseId)
      return
    }
    if (this.#leaseId === undefined) {
      await this.#write(await this.#grant(), undefined)
      return
    }
    if (this.#written < this.#wanted) {
      await this.#write(this.#leaseId, this.#leaseId)
      return
    }
    const { kvs } = await client().kv.range({ key })
    const holder = kvs[0]
    if (!holder) await this.#write(this.#leaseId, this.#leaseId)
    else if (holder.lease !== this.#leaseId) this.#yield()
  }

  async #grant(): Promise<string> {
    const { client, leaseTtlSeconds } = this.#options
    const { ID } = await client().leaseClient.leaseGrant({ TTL: leaseTtlSeconds })
    return String(ID)
  }

  /** Puts what is wanted, unless somebody else has taken the key. @param before the lease under which it stood last */
  async #write(leaseId: string, before: string | undefined): Promise<void> {
    const { client, key } = this.#options
    if (!this.#isAlive) return
    const revision = this.#wanted
    const value = Buffer.from(this.#textOf(this.#entry))
    // Known before it is used: what may have arrived has to be taken back with it.
    const previous = this.#leaseId
    this.#leaseId = leaseId
    if (!this.#hasHeld) {
      await client().kv.put({ key, value, lease: leaseId })
      this.#hasHeld = true
    } else if (!(await this.#putIfOurs(value, leaseId, before ?? leaseId))) {
      this.#yield()
      return
    }
    if (previous !== undefined && previous !== leaseId) {
      // What is left of it holds nothing any more.
      client()
        .leaseClient.leaseRevoke({ ID: previous })
        .catch(() => {
          // It was lost before.
        })
    }
    this.#written = revision
    this.#tell()
  }

  /** @returns whether it was written */
  async #putIfOurs(value: Buffer, leaseId: string, before: string): Promise<boolean> {
    const { client, key } = this.#options
    const put = { request_put: { key, value, lease: leaseId } }
    for (const compare of [
      { key, target: 'Lease', result: 'Equal', lease: before },
      { key, target: 'Lease', result: 'Equal', lease: leaseId },
      { key, target: 'Version', result: 'Equal', version: 0 },
    ] as const) {
      const { succeeded } = await client().kv.txn({ compare: [compare], success: [put], failure: [] })
      if (succeeded) return true
    }
    return false
  }

  /** Somebody else has the key: we leave it alone. */
  #yield(): void {
    if (!this.#end()) return
    this.#options.logger.error(
      { kind: this.kind, id: this.id },
      'another process announces itself under this id: ours is not announced any more',
    )
    void this.#revoke().then(() => this.#resolveLost())
  }

  async #put(entry: FleetEntry): Promise<void> {
    if (isDeepStrictEqual(entry, this.#entry)) return this.#writtenTo(this.#wanted)
    this.#textOf(entry)
    this.#entry = entry
    this.#wanted += 1
    this.#wake()
    return this.#writtenTo(this.#wanted)
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
  #textOf(entry: FleetEntry): string {
    const { recordBytesMax } = this.#options
    const text = toWireText(entry)
    const sizeBytes = Buffer.byteLength(text)
    if (sizeBytes <= recordBytesMax) return text
    throw new DiscoveryError(
      'INFERA_FLEET_FULL',
      `the ${entry.kind} record takes ${sizeBytes} bytes; a record may take ${recordBytesMax}: shorten it, or raise recordBytesMax`,
    )
  }

  #end(): boolean {
    if (!this.#isAlive) return false
    this.#isAlive = false
    this.#stop.abort(new Error('the registration has ended'))
    this.#wake()
    this.#tell()
    this.#onEnd()
    return true
  }
}
