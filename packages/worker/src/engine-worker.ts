import {
  describeDifference,
  parseWorkerRecord,
  type Registration,
  sleep,
  type WorkerRecord,
} from '@infera/fleet'
import type { z } from 'zod'
import { EngineWorkerOptions } from './engine-worker-options.js'
import { FleetDisagreementError, InvalidWorkerOptionsError, WorkerIdTakenError } from './errors.js'
import { mergeRecords } from './merge-records.js'
import { compareWithServer, type Disagreement } from './server-comparison.js'
import { Servers } from './servers.js'
import { type Limits, whenAborted, within } from './within.js'
import type { RecordParts, WorkerPlane } from './worker-plane.js'

/**
 * An engine's place in a fleet that is found through a registry: gets its planes ready, compares its settings with those of the
 * servers there, announces itself, goes on comparing, and at the end is out of rotation before it drains, and drained before it leaves.
 */
export class EngineWorker {
  readonly #options: z.output<typeof EngineWorkerOptions>
  readonly #stop = new AbortController()
  /** Ends the wait for running requests. */
  readonly #drop = new AbortController()
  readonly #servers = new Servers()
  readonly #told = new Map<string, string>()
  readonly #ended: Promise<never>
  #reject: (error: Error) => void = () => {}
  #record: WorkerRecord
  #registration: Registration | undefined
  #isTaken = false
  #started: Promise<void> | undefined
  #watching: Promise<void> = Promise.resolve()
  #drained: Promise<void> | undefined
  #closed: Promise<void> | undefined

  /** @throws InvalidWorkerOptionsError; InvalidRecordError */
  constructor(options: EngineWorkerOptions) {
    const parsed = EngineWorkerOptions.safeParse(options)
    if (!parsed.success) {
      const issue = parsed.error.issues[0]
      throw new InvalidWorkerOptionsError(
        `invalid options of EngineWorker: ${issue?.path.join('.') || 'options'}: ${issue?.message ?? 'unreadable'}`,
      )
    }
    this.#options = parsed.data
    this.#record = this.#ownRecord()
    this.#ended = new Promise((_, reject) => {
      this.#reject = reject
    })
    // Whoever waits for it may not have come yet.
    this.#ended.catch(() => {})
  }

  /** What is announced, or will be. */
  get record(): WorkerRecord {
    return this.#record
  }

  /** Rejects when this worker cannot go on: FleetDisagreementError under `strictFleet`, WorkerIdTakenError. It has left then. */
  get ended(): Promise<never> {
    return this.#ended
  }

  /**
   * Resolves once it is announced; a registry that is away makes that take longer. Idempotent.
   * @throws FleetDisagreementError under `strictFleet`; the reason of `close` when that came first
   */
  start(): Promise<void> {
    this.#started ??= this.#start()
    return this.#started
  }

  /** Asks for no new work and waits for what runs, at most `drainTimeoutMs`. Idempotent. */
  drain(): Promise<void> {
    this.#drained ??= this.#drain()
    return this.#drained
  }

  /** Drains, then leaves. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= this.drain().then(() => this.#leave())
    return this.#closed
  }

  /** Leaves now; running requests break. Idempotent. */
  destroy(): Promise<void> {
    const reason = new Error('the worker was destroyed')
    this.#drop.abort(reason)
    this.#stop.abort(reason)
    return this.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #start(): Promise<void> {
    const { discovery, planes, logger, compareTimeoutMs } = this.#options
    const { signal } = this.#stop
    if (this.#drained) throw new Error('the worker was drained before it was started')
    const parts = await Promise.all(planes.map((plane) => this.#ready(plane)))
    // Onto what it is by now: a plane that was late may have come in between.
    this.#record = mergeRecords(this.#record, ...parts)
    this.#watching = this.#watch(this.#servers)
    await this.#within(this.#servers.known, { timeoutMs: compareTimeoutMs, signal })
    signal.throwIfAborted()
    const refusal = this.#compareAll()
    if (refusal) throw refusal
    const registration = await discovery.register({ kind: 'worker', record: this.#record }, { signal })
    if (signal.aborted) {
      // The write was on its way when this worker was closed.
      await this.#deregister(registration)
      throw signal.reason
    }
    this.#registration = registration
    logger.info({ workerId: registration.id, discovery: discovery.kind }, 'worker is announced')
    void registration.lost.then(() => {
      this.#isTaken = true
      if (signal.aborted) return
      logger.error({ workerId: registration.id }, 'another process has the id of this worker now')
      this.#fail(new WorkerIdTakenError(registration.id))
    })
    this.#servers.onChange = () => this.#reconsider()
    // What was said while the registration was under way.
    this.#reconsider()
  }

  #reconsider(): boolean {
    const error = this.#compareAll()
    if (error) this.#fail(error)
    return error === undefined
  }

  /** @returns what its record is to say; nothing where it is not ready in time */
  async #ready(plane: WorkerPlane): Promise<RecordParts> {
    const { planeTimeoutMs, logger } = this.#options
    const { signal } = this.#stop
    const ready = plane.ready({ signal })
    const parts = await this.#within(ready, { timeoutMs: planeTimeoutMs, signal })
    if (signal.aborted) {
      // Nobody asks any more whether it got ready.
      ready.catch(() => {})
      throw signal.reason
    }
    if (parts) return parts
    logger.warn(
      { plane: plane.name, planeTimeoutMs },
      'a plane is not ready: the worker is announced without it, and again when it is',
    )
    ready
      .then((late) => this.#add(late))
      .catch((error: unknown) => {
        if (!signal.aborted) logger.error({ plane: plane.name, reason: String(error) }, 'a plane has failed')
      })
    return {}
  }

  /** What a late plane says is compared like the rest, and never brings a worker back that drains. */
  async #add(late: RecordParts): Promise<void> {
    this.#record = mergeRecords(this.#record, late)
    await this.#started?.catch(() => {
      // Whoever called `start` is told.
    })
    if (!this.#registration || this.#drained || !this.#reconsider()) return
    await this.#registration.update(this.#record)
  }

  async #watch(servers: Servers): Promise<void> {
    const { discovery, logger } = this.#options
    const { signal } = this.#stop
    try {
      for await (const change of discovery.watch({ signal })) {
        if (change.type === 'snapshot') {
          servers.replace(change.entries.flatMap((entry) => (entry.kind === 'server' ? [entry.record] : [])))
        } else if (change.type === 'entryPut') {
          if (change.entry.kind === 'server') servers.put(change.entry.record)
        } else if (change.kind === 'server') servers.remove(change.id)
      }
    } catch (error) {
      // A registry that may not be read, as for want of rights, does not keep a worker from being announced.
      logger.warn({ reason: String(error) }, 'servers cannot be found: settings are not compared')
    }
  }

  /** @returns why this worker must not go on */
  #compareAll(): FleetDisagreementError | undefined {
    let first: FleetDisagreementError | undefined
    for (const server of this.#servers.all) {
      const disagreement = compareWithServer(this.#record, server)
      this.#tell(server.server_id, disagreement)
      if (!disagreement || !this.#options.strictFleet) continue
      first ??= new FleetDisagreementError(disagreement.serverId, disagreement.differences)
    }
    for (const id of [...this.#told.keys()]) if (!this.#servers.has(id)) this.#told.delete(id)
    return first
  }

  /** One line for each server and each new state of things. */
  #tell(serverId: string, disagreement: Disagreement | undefined): void {
    const lines = disagreement?.differences.map(describeDifference) ?? []
    const text = lines.join('\n')
    if ((this.#told.get(serverId) ?? '') === text) return
    this.#told.set(serverId, text)
    const { logger } = this.#options
    for (const reason of lines) {
      logger.error(
        { workerId: this.#record.worker_id, serverId, reason },
        'this worker disagrees with a server',
      )
    }
    if (lines.length === 0) logger.info({ serverId }, 'this worker agrees with the server again')
  }

  #fail(error: Error): void {
    if (this.#closed) return
    this.close().then(
      () => this.#reject(error),
      () => this.#reject(error),
    )
  }

  async #drain(): Promise<void> {
    const { planes, drainTimeoutMs, deregisterTimeoutMs: timeoutMs } = this.#options
    const { signal } = this.#drop
    const starting = this.#registration ? undefined : this.#started
    if (starting) {
      // Not announced yet: nothing can have been sent to it.
      this.#stop.abort(new Error('the worker was closed before it was announced'))
      const ended = starting.catch(() => {
        // Whoever called `start` is told.
      })
      await this.#within(ended, {
        timeoutMs,
        signal,
        complaint: 'the registry does not say whether it let it go',
      })
    }
    this.#record = { ...this.#record, status: 'draining' }
    const complaint = 'the registry was not told that it drains'
    await this.#within(this.#registration?.drain(), { timeoutMs, signal, complaint })
    if (signal.aborted) return
    const drained = planes.map((plane) =>
      this.#attempt(plane, () => plane.drain?.({ timeoutMs: drainTimeoutMs })),
    )
    await Promise.race([Promise.all([...drained, this.#idle()]), whenAborted(signal)])
  }

  /** Resolves when the engine has run nothing for a while. */
  async #idle(): Promise<void> {
    const { runningRequests, clock, drainTimeoutMs, settleMs, logger } = this.#options
    const { signal } = this.#drop
    if (!runningRequests) return
    const deadlineMs = clock.now() + drainTimeoutMs
    let idleSinceMs = clock.now()
    const pauseMs = Math.max(1, settleMs / 5)
    try {
      while (clock.now() < deadlineMs) {
        if (runningRequests() > 0) idleSinceMs = clock.now()
        else if (clock.now() - idleSinceMs >= settleMs) return
        await sleep(clock, Math.min(pauseMs, Math.max(1, deadlineMs - clock.now())), signal)
      }
      logger.warn({ running: runningRequests(), drainTimeoutMs }, 'requests still run: they are broken off')
    } catch (error) {
      if (!signal.aborted) logger.warn({ reason: String(error) }, 'running requests cannot be counted')
    }
  }

  async #leave(): Promise<void> {
    const { planes } = this.#options
    await this.#deregister(this.#registration)
    this.#stop.abort(new Error('the worker was closed'))
    // Where another process has the id by now, what is kept under it is that one's.
    if (!this.#isTaken) {
      await Promise.all(planes.map((plane) => this.#attempt(plane, () => plane.deregister?.())))
    }
    await Promise.all(planes.map((plane) => this.#attempt(plane, () => this.#endOf(plane))))
    await this.#watching
  }

  #endOf(plane: WorkerPlane): Promise<void> {
    return this.#drop.signal.aborted && plane.destroy ? plane.destroy() : plane.close()
  }

  async #deregister(registration: Registration | undefined): Promise<void> {
    const complaint = 'the record could not be taken away'
    await this.#within(registration?.deregister(), {
      timeoutMs: this.#options.deregisterTimeoutMs,
      complaint,
    })
  }

  /** The end of a worker is not held up by one of its parts. */
  async #attempt(plane: WorkerPlane, work: () => Promise<void> | undefined): Promise<void> {
    try {
      await work()
    } catch (error) {
      this.#options.logger.warn({ plane: plane.name, reason: String(error) }, 'a plane has failed at its end')
    }
  }

  #within<T>(work: Promise<T> | undefined, limits: Limits): Promise<T | undefined> {
    return within(work, { ...limits, clock: this.#options.clock, logger: this.#options.logger })
  }

  #ownRecord(): WorkerRecord {
    const { record, settings } = this.#options
    const base = parseWorkerRecord({ ...record, status: 'active' })
    return mergeRecords(base, { ext: { settings: { ...settings } } })
  }
}
