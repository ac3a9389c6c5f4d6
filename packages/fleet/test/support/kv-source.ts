import type { KvEventBatch, KvEventMessage, KvEventSource, KvViewMessage } from '../../src/index.js'
import { utf8 } from './bodies.js'

/** An engine whose cache is the row of everything it ever published, so that a loss or a doubling shows. */
export class RowSource implements KvEventSource {
  readonly ranks: readonly number[]
  readonly #rows: Map<number, string[]>
  readonly #listeners = new Set<(batch: KvEventBatch) => void>()
  readonly #padding: string
  snapshotsTaken = 0

  /** @param paddingBytes added to every payload */
  constructor(ranks: readonly number[] = [0], paddingBytes = 0) {
    this.ranks = ranks
    this.#rows = new Map(ranks.map((rank) => [rank, []]))
    this.#padding = 'x'.repeat(paddingBytes)
  }

  get listenerCount(): number {
    return this.#listeners.size
  }

  row(rank = 0): string[] {
    return this.#rows.get(rank) ?? []
  }

  publish(rank = 0): void {
    const row = this.row(rank)
    const text = `${rank}:${row.length}`
    row.push(text)
    const batch = { rank, sequence: row.length - 1, payload: utf8(text + this.#padding) }
    for (const listener of this.#listeners) listener(batch)
  }

  snapshot(rank: number) {
    this.snapshotsTaken += 1
    const row = this.row(rank)
    return { sequence: row.length - 1, payloads: row.map((text) => utf8(text + this.#padding)) }
  }

  subscribe(listener: (batch: KvEventBatch) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }
}

/** What a subscriber makes of the messages. Throws where they are not an unbroken row. */
export class RowMirror {
  readonly rows = new Map<number, string[]>()
  snapshots = 0

  apply(message: KvEventMessage | KvViewMessage): void {
    if (message.type === 'view') throw new Error('hashes in place of events')
    const textOf = (payload: Uint8Array) => Buffer.from(payload).toString().replace(/x*$/, '')
    if (message.type === 'snapshot') {
      this.snapshots += 1
      this.rows.set(message.rank, message.payloads.map(textOf))
    } else {
      const row = this.rows.get(message.rank)
      if (!row) throw new Error(`batch ${message.sequence} of rank ${message.rank} before its snapshot`)
      row.push(textOf(message.payload))
    }
    const size = this.rows.get(message.rank)?.length ?? 0
    if (size !== message.sequence + 1) {
      throw new Error(`${message.type} ${message.sequence} of rank ${message.rank} leaves a row of ${size}`)
    }
  }
}
