import { type EntryBoard, entryId } from '../entry-board.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { FleetEntry, FleetEntryKind } from '../ports/discovery.js'
import type { Logger } from '../ports/logger.js'
import { fromWireText } from '../records/wire-text.js'
import type { KeyValue } from './etcd-client.js'

/** What is read of a key. */
export type RecordKeyValue = Pick<KeyValue, 'key' | 'value' | 'mod_revision' | 'lease'>

export interface EntryTableOptions {
  readonly kind: FleetEntryKind
  readonly prefix: string
  readonly board: EntryBoard
  /** How long entries stay of which an etcd that has lost its data says nothing: their owners put them again. */
  readonly dataLossGraceMs: number
  readonly entriesMax: number
  readonly recordBytesMax: number
  readonly clock: Clock
  readonly logger: Logger
}

/** What the keys under a prefix say, brought to the board: a value that cannot be read leaves what was known of its id. */
export class EntryTable {
  readonly #options: EntryTableOptions
  /** Under which change and lease each id on the board was last seen. */
  readonly #versions = new Map<string, string>()
  /** Ids that a fresh etcd does not know, until its grace is over. */
  readonly #doubtful = new Set<string>()
  #timer: Timer | undefined
  #isFull = false

  constructor(options: EntryTableOptions) {
    this.#options = options
  }

  /**
   * All keys: what they do not name is gone, or doubtful where etcd is not the one that we knew. That is so, too, where not one key is
   * as it was: an etcd that came back empty may have passed the old revision before we saw it, but gives no lease twice.
   */
  list(keys: readonly RecordKeyValue[], isOtherHistory: boolean): void {
    const isStrange = isOtherHistory || !keys.some((key) => this.#isUnchanged(key))
    const present = new Set(keys.map(({ key }) => this.#idOf(key)))
    const turnedAway = keys.filter((key) => !this.#admit(key))
    const missing = [...this.#versions.keys()].filter((id) => !present.has(id))
    if (isStrange) this.#doubt(missing)
    for (const id of missing) if (!this.#doubtful.has(id)) this.#remove(id, 'leaseLost')
    // Those that left have made room; nobody puts these again.
    for (const key of turnedAway) this.#admit(key)
  }

  put(key: RecordKeyValue): void {
    this.#admit(key)
  }

  delete(key: Buffer): void {
    this.#remove(this.#idOf(key), 'deregistered')
  }

  close(): void {
    this.#timer?.cancel()
  }

  /** @returns false where it could be used, but there was no room */
  #admit(key: RecordKeyValue): boolean {
    const { kind, prefix, board, logger, entriesMax } = this.#options
    const id = this.#idOf(key.key)
    if (this.#versions.has(id)) this.#versions.set(id, versionOf(key))
    this.#doubtful.delete(id)
    const read = this.#read(id, key.value)
    if (typeof read === 'string') {
      const fields = { kind, key: prefix + id, reason: read }
      logger.warn(fields, 'a record in etcd cannot be used: what was known stays')
      return true
    }
    if (!this.#versions.has(id) && this.#versions.size >= entriesMax) {
      const message = 'more records than entriesMax: further ones are not admitted'
      if (!this.#isFull) logger.error({ kind, entriesMax }, message)
      this.#isFull = true
      return false
    }
    this.#versions.set(id, versionOf(key))
    board.replace(read)
    return true
  }

  /** @returns why it cannot be used, or the entry */
  #read(id: string, value: Buffer): FleetEntry | string {
    const { kind, recordBytesMax } = this.#options
    if (value.byteLength > recordBytesMax) return `it takes more than ${recordBytesMax} bytes`
    try {
      const entry = fromWireText(kind, value.toString('utf8'))
      return entryId(entry) === id ? entry : `it says that its id is '${entryId(entry)}'`
    } catch (error) {
      return error instanceof Error ? error.message : String(error)
    }
  }

  #isUnchanged(key: RecordKeyValue): boolean {
    return this.#versions.get(this.#idOf(key.key)) === versionOf(key)
  }

  #doubt(missing: readonly string[]): void {
    const { kind, dataLossGraceMs, clock, logger } = this.#options
    const fresh = missing.filter((id) => !this.#doubtful.has(id))
    if (fresh.length === 0) return
    for (const id of fresh) this.#doubtful.add(id)
    const fields = { kind, missing: fresh.length, dataLossGraceMs }
    logger.warn(fields, 'etcd may have lost data: waiting for the owners of records')
    this.#timer?.cancel()
    this.#timer = clock.setTimer(dataLossGraceMs, () => {
      for (const id of [...this.#doubtful]) this.#remove(id, 'leaseLost')
    })
  }

  #remove(id: string, reason: 'deregistered' | 'leaseLost'): void {
    this.#doubtful.delete(id)
    if (!this.#versions.delete(id)) return
    this.#isFull = false
    this.#options.board.remove(this.#options.kind, id, reason)
  }

  #idOf(key: Buffer): string {
    return key.subarray(Buffer.byteLength(this.#options.prefix)).toString('utf8')
  }
}

const versionOf = ({ mod_revision: revision, lease }: RecordKeyValue) => `${revision} ${lease}`
