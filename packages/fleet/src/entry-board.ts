import { isDeepStrictEqual } from 'node:util'
import type { FleetChange, FleetEntry, FleetEntryKind } from './ports/discovery.js'

/** The id under which an entry is known among those of its kind. */
export function entryId(entry: FleetEntry): string {
  return entry.kind === 'worker' ? entry.record.worker_id : entry.record.server_id
}

function keyOf(kind: FleetEntryKind, id: string): string {
  return `${kind} ${id}`
}

/** The entries of a fleet as one process knows them, and those who watch them change. */
export class EntryBoard {
  readonly #watchBufferMax: number
  readonly #entries = new Map<string, FleetEntry>()
  readonly #watchers = new Set<Watcher>()
  #isClosed = false

  /** @param watchBufferMax changes held for one watcher; one more and it gets a snapshot in their place */
  constructor(watchBufferMax: number) {
    this.#watchBufferMax = watchBufferMax
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  get size(): number {
    return this.#entries.size
  }

  has(kind: FleetEntryKind, id: string): boolean {
    return this.#entries.has(keyOf(kind, id))
  }

  idsOf(kind: FleetEntryKind): string[] {
    return [...this.#entries.values()].filter((entry) => entry.kind === kind).map(entryId)
  }

  put(entry: FleetEntry): void {
    this.#entries.set(keyOf(entry.kind, entryId(entry)), entry)
    this.#tell({ type: 'entryPut', entry })
  }

  /** As `put`, but says nothing when the same record stands there already. */
  replace(entry: FleetEntry): void {
    const known = this.#entries.get(keyOf(entry.kind, entryId(entry)))
    if (!isDeepStrictEqual(known, entry)) this.put(entry)
  }

  remove(kind: FleetEntryKind, id: string, reason: 'deregistered' | 'leaseLost'): void {
    if (this.#entries.delete(keyOf(kind, id))) this.#tell({ type: 'entryRemoved', kind, id, reason })
  }

  /** Each iteration of the result is a watcher of its own, alive from its first `next` until it is left. */
  watch(signal?: AbortSignal): AsyncIterable<FleetChange> {
    return {
      [Symbol.asyncIterator]: () => {
        const watcher = new Watcher(
          this.#watchBufferMax,
          () => [...this.#entries.values()],
          () => this.#watchers.delete(watcher),
          signal,
        )
        if (this.#isClosed || signal?.aborted) watcher.end()
        else this.#watchers.add(watcher)
        return watcher
      },
    }
  }

  close(): void {
    this.#isClosed = true
    for (const watcher of [...this.#watchers]) watcher.end()
    this.#entries.clear()
  }

  #tell(change: FleetChange): void {
    for (const watcher of this.#watchers) watcher.offer(change)
  }
}

/**
 * One watcher's place in the order of changes. While `#owesSnapshot` is set the buffer is empty and changes are not
 * kept: the snapshot is taken when it is handed out, so it contains them.
 */
class Watcher implements AsyncIterator<FleetChange> {
  readonly #bufferMax: number
  readonly #entries: () => FleetEntry[]
  readonly #onEnd: () => void
  readonly #signal: AbortSignal | undefined
  readonly #onAbort = () => this.end()
  #buffer: FleetChange[] = []
  #owesSnapshot = true
  #isEnded = false
  #waiting: ((result: IteratorResult<FleetChange>) => void) | undefined

  constructor(bufferMax: number, entries: () => FleetEntry[], onEnd: () => void, signal?: AbortSignal) {
    this.#bufferMax = bufferMax
    this.#entries = entries
    this.#onEnd = onEnd
    this.#signal = signal
    signal?.addEventListener('abort', this.#onAbort, { once: true })
  }

  offer(change: FleetChange): void {
    if (this.#owesSnapshot) return
    const waiting = this.#waiting
    if (waiting) {
      this.#waiting = undefined
      waiting({ value: change, done: false })
    } else if (this.#buffer.length < this.#bufferMax) {
      this.#buffer.push(change)
    } else {
      this.#buffer = []
      this.#owesSnapshot = true
    }
  }

  end(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#buffer = []
    this.#signal?.removeEventListener('abort', this.#onAbort)
    this.#onEnd()
    this.#waiting?.({ value: undefined, done: true })
    this.#waiting = undefined
  }

  next(): Promise<IteratorResult<FleetChange>> {
    if (this.#isEnded) return Promise.resolve({ value: undefined, done: true })
    if (this.#owesSnapshot) {
      this.#owesSnapshot = false
      return Promise.resolve({ value: { type: 'snapshot', entries: this.#entries() }, done: false })
    }
    const change = this.#buffer.shift()
    if (change) return Promise.resolve({ value: change, done: false })
    return new Promise((resolve) => {
      this.#waiting = resolve
    })
  }

  return(): Promise<IteratorResult<FleetChange>> {
    this.end()
    return Promise.resolve({ value: undefined, done: true })
  }
}
