import { z } from 'zod'
import { EntryBoard } from '../entry-board.js'
import { Refusals, type RefusedWorker } from '../link/refusals.js'
import { bound, clockOption, durationMs, loggerOption, parseOptions, part, randomOption } from '../options.js'
import type { Timer } from '../ports/clock.js'
import type { Discovery, FleetChange, FleetEntry, Registration } from '../ports/discovery.js'
import type { WorkerRecord } from '../records/worker-record.js'
import { describeDifference, type FleetSettings, settingDifferences, statedSettings } from '../settings.js'
import { SnapshotGate } from '../snapshot-gate.js'
import { type AddressProber, httpAddressProber } from './address-probe.js'
import { AddressWatch } from './address-watch.js'
import { ModelAgreement } from './model-agreement.js'
import type { WorkerProblem } from './worker-problem.js'

const Options = z.strictObject({
  /** Where workers announce themselves. It is closed with this. */
  source: part<Discovery>('a Discovery'),
  /** What this server has, for the model of a worker. */
  settingsFor: part<(record: WorkerRecord) => FleetSettings>('a function').default(() => () => ({})),
  /** Asks whether a worker can be reached where it says; null: none is asked. */
  prober: part<AddressProber>('an AddressProber')
    .nullable()
    .default(() => httpAddressProber),
  probe: z
    .strictObject({
      timeoutMs: durationMs().default(5_000),
      retryFirstMs: durationMs().default(1_000),
      retryMaxMs: durationMs().default(30_000),
      intervalMs: durationMs().default(5_000),
    })
    .prefault({}),
  /** Probes under way at once. */
  probesMax: bound().default(64),
  /** How often the registry is asked whether it still knows. */
  checkIntervalMs: durationMs().default(1_000),
  /** How long after the registry is back its word alone does not count: a key may outlive its worker by its lease. */
  verifyForMs: durationMs().default(35_000),
  /** Changes held for one watcher; one more and it gets a snapshot in their place. */
  watchBufferMax: bound().default(1024),
  clock: clockOption,
  random: randomOption,
  logger: loggerOption,
})
export type CheckedDiscoveryOptions = z.input<typeof Options>

interface Tracked {
  record: WorkerRecord
  differences: readonly WorkerProblem[]
  address: WorkerProblem | undefined
  watch: AddressWatch | undefined
}

/**
 * A registry as a server believes it: workers that disagree with the server on what must be shared are turned away, those that
 * differ in what only costs are listed with their `problems`, and those that cannot be reached are listed as `dead` with the reason
 * until they can. While the registry itself is away its last word is kept, each worker marked `unverified` and asked directly.
 */
export class CheckedDiscovery implements Discovery {
  readonly kind: string
  readonly #options: z.output<typeof Options>
  readonly #board: EntryBoard
  readonly #gate = new SnapshotGate()
  readonly #agreement = new ModelAgreement()
  readonly #tracked = new Map<string, Tracked>()
  readonly #turnedAway = new Map<string, WorkerRecord>()
  readonly #refusals: Refusals
  readonly #stop = new AbortController()
  readonly #probes: Turns
  readonly #ending = new Set<Promise<void>>()
  #following: Promise<void> | undefined
  #timer: Timer | undefined
  #wasLive = false
  #wasSilent = false
  #isAway = false
  #unverifiedUntilMs = 0

  /** @throws InvalidFleetOptionsError */
  constructor(options: CheckedDiscoveryOptions) {
    this.#options = parseOptions('CheckedDiscovery', Options, options)
    this.kind = this.#options.source.kind
    this.#board = new EntryBoard(this.#options.watchBufferMax)
    this.#refusals = new Refusals(() => this.#options.clock.now())
    this.#probes = new Turns(this.#options.probesMax)
  }

  /** Whether what the registry says is the present. */
  get isLive(): boolean {
    return this.#options.source.isLive ?? true
  }

  /** Workers that were turned away and have not come in since. */
  refused(): RefusedWorker[] {
    return this.#refusals.list()
  }

  /** At the registry, unchecked. */
  register(entry: FleetEntry, options: { signal?: AbortSignal } = {}): Promise<Registration> {
    return this.#options.source.register(entry, options)
  }

  watch(options: { signal?: AbortSignal } = {}): AsyncIterable<FleetChange> {
    this.#following ??= this.#follow()
    return this.#gate.behind(this.#board.watch(options.signal), options.signal)
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error('discovery was closed'))
    this.#timer?.cancel()
    this.#gate.open()
    await this.#options.source.close()
    await this.#following
    for (const { watch } of this.#tracked.values()) this.#end(watch)
    await Promise.all(this.#ending)
    this.#board.close()
  }

  async #follow(): Promise<void> {
    const { signal } = this.#stop
    this.#check()
    for await (const change of this.#options.source.watch({ signal })) {
      if (change.type === 'entryPut') this.#put(change.entry)
      else if (change.type === 'entryRemoved') this.#remove(change.kind, change.id, change.reason)
      else this.#takeSnapshot(change.entries)
      if (change.type === 'snapshot') this.#gate.open()
    }
  }

  #takeSnapshot(entries: readonly FleetEntry[]): void {
    const workers = new Set(
      entries.map((entry) => (entry.kind === 'worker' ? entry.record.worker_id : undefined)),
    )
    const servers = new Set(
      entries.map((entry) => (entry.kind === 'server' ? entry.record.server_id : undefined)),
    )
    for (const id of [...this.#tracked.keys(), ...this.#turnedAway.keys()]) {
      if (!workers.has(id)) this.#remove('worker', id, 'leaseLost')
    }
    for (const id of this.#board.idsOf('server')) {
      if (!servers.has(id)) this.#remove('server', id, 'leaseLost')
    }
    for (const entry of entries) this.#put(entry)
  }

  #put(entry: FleetEntry): void {
    if (entry.kind === 'server') this.#board.replace(entry)
    else this.#putWorker(entry.record)
  }

  #putWorker(record: WorkerRecord): void {
    const id = record.worker_id
    const known = this.#tracked.get(id)
    if (known) this.#leaveModel(known.record, record)
    const differences = settingDifferences(this.#options.settingsFor(record), statedSettings(record))
    const refusing = differences.find(({ effect }) => effect === 'refused')
    const reason = refusing ? describeDifference(refusing) : this.#agreement.objection(record)
    if (reason !== undefined) {
      this.#turnAway(record, reason, refusing?.name ?? 'tokenizer_canary')
      return
    }
    this.#turnedAway.delete(id)
    this.#refusals.remove(id)
    this.#agreement.add(record)
    const tracked = known ?? { record, differences: [], address: undefined, watch: undefined }
    const before = tracked.record
    this.#tracked.set(id, tracked)
    tracked.record = record
    const told = new Set(tracked.differences.map(({ message }) => message))
    tracked.differences = [
      ...differences.map((difference) => ({
        code: difference.name,
        message: describeDifference(difference),
        effect: difference.effect as WorkerProblem['effect'],
      })),
      ...this.#agreement.problems(record),
    ]
    for (const { message, effect } of tracked.differences) {
      if (!told.has(message)) this.#warn(id, message, effect)
    }
    const hasMoved = before.url !== record.url || before.request_transport !== record.request_transport
    if (!tracked.watch || hasMoved) this.#watchAddress(tracked)
    this.#publish(tracked)
  }

  #turnAway(record: WorkerRecord, reason: string, setting: string): void {
    const id = record.worker_id
    const known = this.#tracked.get(id)
    this.#end(known?.watch)
    this.#tracked.delete(id)
    this.#board.remove('worker', id, 'deregistered')
    const before = this.#refusals.list().find(({ workerId }) => workerId === id)
    this.#turnedAway.set(id, record)
    if (before?.reason === reason) return
    this.#refusals.add(record, { reason, setting })
    this.#options.logger.error(
      { workerId: id, model: record.model_name, reason },
      'a worker was turned away: it disagrees with this server',
    )
  }

  #remove(kind: 'worker' | 'server', id: string, reason: 'deregistered' | 'leaseLost'): void {
    if (kind === 'worker') {
      this.#turnedAway.delete(id)
      this.#refusals.remove(id)
      const tracked = this.#tracked.get(id)
      this.#tracked.delete(id)
      this.#end(tracked?.watch)
      if (tracked) this.#leaveModel(tracked.record)
    }
    this.#board.remove(kind, id, reason)
  }

  /** @param record what it says now; what it said before about another model, or other tokens, counts no more */
  #leaveModel(before: WorkerRecord, record?: WorkerRecord): void {
    if (!this.#agreement.remove(before)) return
    // It is this very worker that comes in again, and must not find others in its place.
    if (record?.model_name === before.model_name) return
    for (const [id, waiting] of [...this.#turnedAway]) {
      if (waiting.model_name === before.model_name && id !== before.worker_id) this.#putWorker(waiting)
    }
  }

  #watchAddress(tracked: Tracked): void {
    const { prober, probe, clock, random, logger } = this.#options
    this.#end(tracked.watch)
    tracked.address = undefined
    if (!prober) return
    const { record } = tracked
    tracked.watch = new AddressWatch({
      ...{ record, probe, clock, random },
      prober: (worker, options) => this.#probes.take(() => prober(worker, options)),
      isUnverified: () => this.#isUnverified,
      onChange: (problem) => {
        tracked.address = problem
        if (problem) this.#warn(record.worker_id, problem.message, problem.effect)
        else logger.info({ workerId: record.worker_id, url: record.url }, 'a worker can be reached again')
        this.#publish(tracked)
      },
    })
  }

  #end(watch: AddressWatch | undefined): void {
    if (!watch) return
    const ending = watch.stop().finally(() => this.#ending.delete(ending))
    this.#ending.add(ending)
  }

  #publish({ record, differences, address }: Tracked): void {
    const problems = [...differences]
    if (address) problems.push(address)
    if (this.#isAway) {
      const message = `the registry (${this.kind}) is away: this is its last word, and the worker is asked directly`
      problems.push({ code: 'unverified', message, effect: 'degraded' })
    }
    const isUnroutable = problems.some(({ effect }) => effect === 'unroutable')
    const status = isUnroutable && record.status === 'active' ? 'dead' : record.status
    this.#board.replace({
      kind: 'worker',
      record: problems.length === 0 ? record : { ...record, status, problems },
    })
  }

  #warn(workerId: string, reason: string, effect: string): void {
    this.#options.logger.warn({ workerId, reason, effect }, 'something is wrong with a worker')
  }

  get #isUnverified(): boolean {
    return this.#isAway || this.#options.clock.now() < this.#unverifiedUntilMs
  }

  /** Looks whether the registry still speaks. */
  #check(): void {
    const { clock, checkIntervalMs, verifyForMs, logger } = this.#options
    const { isLive } = this
    // One that is still to be reached for the first time has said nothing that could be doubted; its first list comes a moment
    // before its watch.
    const hasSpoken = this.#wasLive || (this.#wasSilent && this.#tracked.size > 0)
    this.#wasLive ||= isLive
    this.#wasSilent = !isLive
    const isAway = hasSpoken && !isLive
    if (isAway !== this.#isAway) {
      this.#isAway = isAway
      if (!isAway) this.#unverifiedUntilMs = clock.now() + verifyForMs
      const fields = { discovery: this.kind, workers: this.#tracked.size }
      if (isAway)
        logger.warn(fields, 'the registry is away: workers stay as they are known, and are asked directly')
      else logger.info(fields, 'the registry is back')
      for (const tracked of this.#tracked.values()) {
        this.#publish(tracked)
        tracked.watch?.reconsider()
      }
    }
    this.#timer = clock.setTimer(checkIntervalMs, () => this.#check())
  }
}

/** Lets so many through at once; others wait their turn. */
class Turns {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(max: number) {
    this.#free = max
  }

  async take<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free === 0) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    else this.#free -= 1
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next) next()
      else this.#free += 1
    }
  }
}
