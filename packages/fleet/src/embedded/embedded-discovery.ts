import { z } from 'zod'
import { EntryBoard, entryId } from '../entry-board.js'
import { DiscoveryError, InvalidFleetOptionsError } from '../errors.js'
import { bound, parseOptions } from '../options.js'
import type { Discovery, FleetChange, FleetEntry, FleetEntryKind, Registration } from '../ports/discovery.js'
import { checkEntry } from '../records/wire-text.js'

const Options = z.strictObject({
  /** Changes held for one watcher; one more and it gets a snapshot in their place. */
  watchBufferMax: bound().default(1024),
  /** Records held; at the bound a further registration is refused. */
  entriesMax: bound().default(65_536),
})
export type EmbeddedDiscoveryOptions = z.input<typeof Options>

/** A registration whose owner lives in this process and may also declare it lost. */
export interface EmbeddedRegistration extends Registration {
  /** Ends the registration as `leaseLost`: its owner was cut off rather than left. Idempotent. */
  expire(): void
}

/** The registry of a server that is itself the registry: records in memory, kept alive by whoever holds their registration. */
export class EmbeddedDiscovery implements Discovery {
  readonly kind = 'embedded'
  readonly #board: EntryBoard
  readonly #entriesMax: number
  readonly #owners = new Map<string, Owned>()

  /** @throws InvalidFleetOptionsError */
  constructor(options: EmbeddedDiscoveryOptions = {}) {
    const parsed = parseOptions('EmbeddedDiscovery', Options, options)
    this.#board = new EntryBoard(parsed.watchBufferMax)
    this.#entriesMax = parsed.entriesMax
  }

  /**
   * @throws DiscoveryError `INFERA_FLEET_CLOSED` after `close`, `INFERA_FLEET_FULL` at `entriesMax`
   * @throws InvalidRecordError
   */
  async register(entry: FleetEntry, options: { signal?: AbortSignal } = {}): Promise<EmbeddedRegistration> {
    options.signal?.throwIfAborted()
    return this.registerNow(entry)
  }

  /** `register` without waiting, for an owner that must answer in the same turn. Same errors. */
  registerNow(entry: FleetEntry): EmbeddedRegistration {
    const checked = checkEntry(entry)
    const id = entryId(checked)
    if (this.#board.isClosed) {
      throw new DiscoveryError(
        'INFERA_FLEET_CLOSED',
        `cannot register ${checked.kind} '${id}': discovery is closed`,
      )
    }
    if (!this.#board.has(checked.kind, id) && this.#board.size >= this.#entriesMax) {
      throw new DiscoveryError(
        'INFERA_FLEET_FULL',
        `cannot register ${checked.kind} '${id}': ${this.#entriesMax} records are registered; raise entriesMax`,
      )
    }
    const key = `${checked.kind} ${id}`
    this.#owners.get(key)?.lose()
    const owned = new Owned(this.#board, checked, () => this.#owners.delete(key))
    this.#owners.set(key, owned)
    this.#board.put(checked)
    return owned
  }

  watch(options: { signal?: AbortSignal } = {}): AsyncIterable<FleetChange> {
    return this.#board.watch(options.signal)
  }

  async close(): Promise<void> {
    for (const owned of [...this.#owners.values()]) await owned.deregister()
    this.#board.close()
  }
}

/** Alive while it may touch the board: until it was taken over, lost, or given back. */
class Owned implements EmbeddedRegistration {
  readonly kind: FleetEntryKind
  readonly id: string
  readonly lost: Promise<void>
  readonly #board: EntryBoard
  readonly #onEnd: () => void
  #entry: FleetEntry
  #isAlive = true
  #resolveLost = () => {}

  constructor(board: EntryBoard, entry: FleetEntry, onEnd: () => void) {
    this.#board = board
    this.#entry = entry
    this.#onEnd = onEnd
    this.kind = entry.kind
    this.id = entryId(entry)
    this.lost = new Promise((resolve) => {
      this.#resolveLost = resolve
    })
  }

  async update(record: FleetEntry['record']): Promise<void> {
    const entry = checkEntry({ kind: this.kind, record })
    if (entryId(entry) !== this.id) {
      throw new InvalidFleetOptionsError(
        `a registration keeps its id: it is '${this.id}', the new record says '${entryId(entry)}'`,
      )
    }
    if (!this.#isAlive) return
    this.#entry = entry
    this.#board.replace(entry)
  }

  async drain(): Promise<void> {
    if (!this.#isAlive || this.#entry.kind !== 'worker') return
    this.#entry = { kind: 'worker', record: { ...this.#entry.record, status: 'draining' } }
    this.#board.replace(this.#entry)
  }

  async deregister(): Promise<void> {
    if (this.#end()) this.#board.remove(this.kind, this.id, 'deregistered')
  }

  expire(): void {
    if (!this.#end()) return
    this.#board.remove(this.kind, this.id, 'leaseLost')
    this.#resolveLost()
  }

  /** Another registration took the record over; it stays on the board. */
  lose(): void {
    if (this.#end()) this.#resolveLost()
  }

  #end(): boolean {
    if (!this.#isAlive) return false
    this.#isAlive = false
    this.#onEnd()
    return true
  }
}
