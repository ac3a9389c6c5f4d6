import { type EntryBoard, entryId } from '../entry-board.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { FleetEntry, FleetEntryKind } from '../ports/discovery.js'
import type { Logger } from '../ports/logger.js'
import { fromWireText } from '../records/wire-text.js'
import type { KeyValue } from './etcd-client.js'

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
  readonly #ids = new Set<string>()
  /** Ids that a fresh etcd does not know, until its grace is over. */
  readonly #doubtful = new Set<string>()
  #timer: Timer | undefined
  #isFull = false

  constructor(options: EntryTableOptions) {
    this.#options = options
  }

  /** All keys: what they do not name is gone, or doubtful where etcd is not the one that we knew. */
  list(keys: readonly KeyValue[], isOtherHistory: boolean): void {
    const present = new Set<string>()
    for (const key of keys) {
      this.put(key)
      present.add(this.#idOf(key.key))
    }
    const missing = [...this.#ids].filter((id) => !present.has(id))
    if (!isOtherHistory && this.#doubtful.size === 0) {
      for (const id of missing) this.#remove(id, 'leaseLost')
      return
    }
    const { kind, dataLossGraceMs, clock, logger } = this.#options
    if (isOtherHistory) {
      for (const id of missing) this.#doubtful.add(id)
      logger.warn(
        { kind, missing: missing.length, dataLossGraceMs },
        'etcd has lost data: waiting for the owners of records',
      )
      this.#timer ??= clock.setTimer(dataLossGraceMs, () => this.#endGrace())
    }
    for (const id of missing) if (!this.#doubtful.has(id)) this.#remove(id, 'leaseLost')
  }

  put(key: KeyValue): void {
    const { kind, prefix, board, logger, entriesMax } = this.#options
    const id = this.#idOf(key.key)
    const read = this.#read(id, key.value)
    if (typeof read === 'string') {
      const fields = { kind, key: prefix + id, reason: read }
      logger.warn(fields, 'a record in etcd cannot be used: what was known stays')
      return
    }
    if (!this.#ids.has(id) && this.#ids.size >= entriesMax) {
      const message = 'more records than entriesMax: further ones are not admitted'
      if (!this.#isFull) logger.error({ kind, entriesMax }, message)
      this.#isFull = true
      return
    }
    this.#ids.add(id)
    this.#doubtful.delete(id)
    board.replace(read)
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

  delete(key: Buffer): void {
    this.#remove(this.#idOf(key), 'deregistered')
  }

  close(): void {
    this.#timer?.cancel()
  }

  #endGrace(): void {
    this.#timer = undefined
    for (const id of [...this.#doubtful]) this.#remove(id, 'leaseLost')
  }

  #remove(id: string, reason: 'deregistered' | 'leaseLost'): void {
    this.#doubtful.delete(id)
    if (!this.#ids.delete(id)) return
    this.#isFull = false
    this.#options.board.remove(this.#options.kind, id, reason)
  }

  #idOf(key: Buffer): string {
    return key.subarray(Buffer.byteLength(this.#options.prefix)).toString('utf8')
  }
}
