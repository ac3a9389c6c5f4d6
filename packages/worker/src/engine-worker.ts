import {
  type Clock,
  type Discovery,
  describeDifference,
  type FleetSettings,
  type Logger,
  parseWorkerRecord,
  type Registration,
  silentLogger,
  sleep,
  systemClock,
  type WorkerRecord,
} from '@infera/fleet'
import { z } from 'zod'
import { FleetDisagreementError, InvalidWorkerOptionsError, WorkerIdTakenError } from './errors.js'
import { mergeRecords } from './merge-records.js'
import { compareWithServer, type Disagreement } from './server-comparison.js'
import { Servers } from './servers.js'
import type { RecordParts, WorkerPlane } from './worker-plane.js'

const durationMs = () => z.number().nonnegative().max(2_147_483_647)
const part = <T>(what: string) =>
  z.custom<T>((value) => (typeof value === 'object' && value !== null) || typeof value === 'function', {
    message: `must be ${what}`,
  })

const Options = z.strictObject({
  /** Who it is; its status is left to this class. */
  record: part<Omit<WorkerRecord, 'status'>>('a worker record'),
  /** Where it announces itself, and where its servers stand. It is not closed. */
  discovery: part<Discovery>('a Discovery'),
  /** How requests and KV events travel; none: HTTP to the url of the record. */
  planes: z.array(part<WorkerPlane>('a WorkerPlane')).default([]),
  /** What it states of shared settings beyond what its record says; goes into `ext.settings`. */
  settings: z
    .custom<FleetSettings>((value) => typeof value === 'object' && value !== null)
    .default(() => ({})),
  /** Whether it ends where a server's settings differ, or goes on. */
  strictFleet: z.boolean().default(true),
  /** Requests running at the engine, for planes that do not know. */
  runningRequests: part<() => number>('a function').optional(),
  /** How long nothing may run before that counts as the end; requests may be on their way. */
  settleMs: durationMs().default(250),
  /** Longest wait for the registry to name its servers. */
  compareTimeoutMs: durationMs().default(5_000),
  /** Longest wait for a plane; it goes on trying after that. */
  planeTimeoutMs: durationMs().default(30_000),
  /** Longest wait for running requests at the end. */
  drainTimeoutMs: durationMs().default(30_000),
  /** Longest wait for the registry at the end. */
  deregisterTimeoutMs: durationMs().default(10_000),
  clock: part<Clock>('a Clock').default(() => systemClock),
  logger: part<Logger>('a Logger').default(() => silentLogger),
})
export type EngineWorkerOptions = z.input<typeof Options>

/**
 * An engine's place in a fleet that is found through a registry: gets its planes ready, compares its settings with those of the
 * servers there, announces itself, goes on comparing, and at the end is out of rotation before it drains, and drained before it leaves.
 */
export class EngineWorker {
  readonly #options: z.output<typeof Options>
  readonly #stop = new AbortController()
  readonly #told = new Map<string, string>()
  readonly #ended: Promise<never>
  #reject: (error: Error) => void = () => {}
  #record: WorkerRecord
  #registration: Registration | undefined
  #started: Promise<void> | undefined
  #watching: Promise<void> = Promise.resolve()
  #drained: Promise<void> | undefined
  #closed: Promise<void> | undefined

  /** @throws InvalidWorkerOptionsError; InvalidRecordError */
  constructor(options: EngineWorkerOptions) {
    const parsed = Options.safeParse(options)
    if (!parsed.success) {
      const issue = parsed.error.issues[0]
      throw new InvalidWorkerOptionsError(
        `invalid options of EngineWorker: ${issue?.path.join('.') || 'options'}: ${issue?.message ?? 'unreadable'}`,
      )
    }
    this.#options = parsed.data
    this.#record = this.#recordWith([])
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
    this.#drained ??= Promise.resolve()
    return this.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #start(): Promise<void> {
    const { discovery, planes, logger } = this.#options
    const { signal } = this.#stop
    const parts = await Promise.all(planes.map((plane) => this.#ready(plane)))
    this.#record = this.#recordWith(parts)
    const servers = new Servers()
    this.#watching = this.#watch(servers)
    await this.#within(servers.known, this.#options.compareTimeoutMs)
    signal.throwIfAborted()
    const refusal = this.#compareAll(servers)
    if (refusal) throw refusal
    const registration = await discovery.register({ kind: 'worker', record: this.#record }, { signal })
    this.#registration = registration
    logger.info({ workerId: registration.id, discovery: discovery.kind }, 'worker is announced')
    void registration.lost.then(() => {
      if (signal.aborted) return
      logger.error({ workerId: registration.id }, 'another process has the id of this worker now')
      this.#fail(new WorkerIdTakenError(registration.id))
    })
    servers.onChange = () => {
      const late = this.#compareAll(servers)
      if (late) this.#fail(late)
    }
  }

  /** @returns what its record is to say; nothing where it is not ready in time */
  async #ready(plane: WorkerPlane): Promise<RecordParts> {
    const { planeTimeoutMs, logger } = this.#options
    const { signal } = this.#stop
    const ready = plane.ready({ signal })
    const parts = await this.#within(ready, planeTimeoutMs)
    signal.throwIfAborted()
    if (parts) return parts
    logger.warn(
      { plane: plane.name, planeTimeoutMs },
      'a plane is not ready: the worker is announced without it, and again when it is',
    )
    ready.then(
      async (late) => {
        this.#record = mergeRecords(this.#record, late)
        await this.#started
        await this.#registration?.update(this.#record)
      },
      (error: unknown) => {
        if (!signal.aborted) logger.error({ plane: plane.name, reason: String(error) }, 'a plane has failed')
      },
    )
    return {}
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
  #compareAll(servers: Servers): FleetDisagreementError | undefined {
    let first: FleetDisagreementError | undefined
    for (const server of servers.all) {
      const disagreement = compareWithServer(this.#record, server)
      this.#tell(server.server_id, disagreement)
      if (!disagreement || !this.#options.strictFleet) continue
      first ??= new FleetDisagreementError(disagreement.serverId, disagreement.differences)
    }
    for (const id of [...this.#told.keys()]) if (!servers.has(id)) this.#told.delete(id)
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
    const { planes, drainTimeoutMs, deregisterTimeoutMs } = this.#options
    const starting = this.#registration ? undefined : this.#started
    if (starting) {
      // Not announced yet: nothing can have been sent to it.
      this.#stop.abort(new Error('the worker was closed before it was announced'))
      await starting.catch(() => {
        // Whoever called `start` is told.
      })
    }
    await this.#within(
      this.#registration?.drain(),
      deregisterTimeoutMs,
      'the registry was not told that it drains',
    )
    const drained = planes.map((plane) => this.#attempt(plane, plane.drain?.({ timeoutMs: drainTimeoutMs })))
    await Promise.all([...drained, this.#idle()])
  }

  /** Resolves when the engine has run nothing for a while. */
  async #idle(): Promise<void> {
    const { runningRequests, clock, drainTimeoutMs, settleMs } = this.#options
    if (!runningRequests) return
    const deadlineMs = clock.now() + drainTimeoutMs
    let idleSinceMs = clock.now()
    const pauseMs = Math.max(1, settleMs / 5)
    while (clock.now() < deadlineMs) {
      if (runningRequests() > 0) idleSinceMs = clock.now()
      else if (clock.now() - idleSinceMs >= settleMs) return
      await sleep(clock, Math.min(pauseMs, Math.max(1, deadlineMs - clock.now())))
    }
    this.#options.logger.warn(
      { running: runningRequests(), drainTimeoutMs },
      'requests still run: they are broken off',
    )
  }

  async #leave(): Promise<void> {
    const { planes, deregisterTimeoutMs } = this.#options
    await this.#within(
      this.#registration?.deregister(),
      deregisterTimeoutMs,
      'the record could not be taken away',
    )
    this.#stop.abort(new Error('the worker was closed'))
    await Promise.all(planes.map((plane) => this.#attempt(plane, plane.deregister?.())))
    await Promise.all(planes.map((plane) => this.#attempt(plane, plane.close())))
    await this.#watching
  }

  /** The end of a worker is not held up by one of its parts. */
  async #attempt(plane: WorkerPlane, work: Promise<void> | undefined): Promise<void> {
    try {
      await work
    } catch (error) {
      this.#options.logger.warn({ plane: plane.name, reason: String(error) }, 'a plane has failed at its end')
    }
  }

  /** @returns what the promise gives; undefined when it takes too long, fails, or this worker is closed */
  async #within<T>(
    work: Promise<T> | undefined,
    timeoutMs: number,
    complaint?: string,
  ): Promise<T | undefined> {
    const { clock, logger } = this.#options
    const done = new AbortController()
    const late = sleep(clock, timeoutMs, done.signal).then(
      () => 'late' as const,
      () => undefined,
    )
    const settled = Promise.resolve(work).then(
      (value) => ({ value }),
      (error: unknown) => ({ error }),
    )
    const result = await Promise.race([settled, late])
    done.abort()
    if (result !== undefined && result !== 'late' && 'value' in result) return result.value
    const reason = result === 'late' ? `no answer within ${timeoutMs} ms` : String(result?.error)
    if (complaint !== undefined) logger.warn({ reason }, complaint)
    else if (result !== 'late') throw result?.error
    return undefined
  }

  #recordWith(parts: readonly RecordParts[]): WorkerRecord {
    const { record, settings } = this.#options
    const base = parseWorkerRecord({ ...record, status: 'active' })
    return mergeRecords(base, { ext: { settings: { ...settings } } }, ...parts)
  }
}
