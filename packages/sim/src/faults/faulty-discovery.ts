import type { Discovery, FleetChange, FleetEntry, Registration, WorkerRecord } from '@infera/fleet'
import { InjectedFaultError } from '../errors.js'

/**
 * A registry with faults, as its watchers see it: a lease is lost though the worker lives, an entry is missing from a snapshot, an
 * entry stands there whose worker is gone, changes come late or not at all until the watch breaks. Registrations pass through.
 */
export class FaultyDiscovery implements Discovery {
  readonly #inner: Discovery
  readonly #watches = new Set<Watch>()
  readonly #hidden = new Set<string>()
  readonly #ghosts = new Map<string, WorkerRecord>()
  #isStalled = false

  constructor(inner: Discovery) {
    this.#inner = inner
  }

  get kind(): string {
    return this.#inner.kind
  }

  register(entry: FleetEntry, options?: { signal?: AbortSignal }): Promise<Registration> {
    return this.#inner.register(entry, options)
  }

  watch({ signal }: { signal?: AbortSignal } = {}): AsyncIterable<FleetChange> {
    return {
      [Symbol.asyncIterator]: () => {
        const watch: Watch = new Watch(this.#inner, signal, {
          isHidden: (workerId) => this.#hidden.has(workerId),
          isStalled: () => this.#isStalled,
          ghosts: () => this.#ghosts.values(),
          onEnd: () => this.#watches.delete(watch),
        })
        this.#watches.add(watch)
        return watch
      },
    }
  }

  close(): Promise<void> {
    return this.#inner.close()
  }

  /** The worker's lease runs out though it lives; watchers see it leave. */
  loseLease(workerId: string): void {
    this.#hidden.add(workerId)
    for (const watch of this.#watches) {
      watch.tell({ type: 'entryRemoved', kind: 'worker', id: workerId, reason: 'leaseLost' })
    }
  }

  /** Watchers get a snapshot in which the worker is missing. */
  forget(workerId: string): void {
    this.#hidden.add(workerId)
    for (const watch of this.#watches) watch.tellSnapshot()
  }

  /** The worker is known again, if it is there. */
  remember(workerId: string): void {
    if (!this.#hidden.delete(workerId)) return
    for (const watch of this.#watches) watch.tellAgain(workerId)
  }

  /** An entry whose worker is gone. */
  addGhost(record: WorkerRecord): void {
    this.#ghosts.set(record.worker_id, record)
    for (const watch of this.#watches) watch.tell({ type: 'entryPut', entry: { kind: 'worker', record } })
  }

  removeGhost(workerId: string): void {
    if (!this.#ghosts.delete(workerId)) return
    for (const watch of this.#watches) {
      watch.tell({ type: 'entryRemoved', kind: 'worker', id: workerId, reason: 'leaseLost' })
    }
  }

  /** Changes are held back; `resume` brings what is true then, as a snapshot. */
  stall(): void {
    this.#isStalled = true
  }

  resume(): void {
    this.#isStalled = false
    for (const watch of this.#watches) watch.tellSnapshot()
  }

  /** Breaks every watch; a new one begins with a snapshot. */
  break(): void {
    for (const watch of [...this.#watches]) {
      watch.fail(new InjectedFaultError('the watch of the registry broke'))
    }
  }
}

interface Overlay {
  isHidden(workerId: string): boolean
  isStalled(): boolean
  ghosts(): Iterable<WorkerRecord>
  onEnd(): void
}

/** One watcher's changes: the registry's own, as far as they are let through, and those that faults add. */
class Watch implements AsyncIterator<FleetChange> {
  readonly #overlay: Overlay
  readonly #stop = new AbortController()
  readonly #forgetSignal: () => void
  /** What is true, by kind and id. */
  readonly #entries = new Map<string, FleetEntry>()
  #queue: FleetChange[] = []
  #hasBegun = false
  #end: { readonly error?: unknown } | undefined
  #wake = () => {}

  constructor(inner: Discovery, signal: AbortSignal | undefined, overlay: Overlay) {
    this.#overlay = overlay
    const onAbort = () => this.#finish({})
    signal?.addEventListener('abort', onAbort, { once: true })
    this.#forgetSignal = () => signal?.removeEventListener('abort', onAbort)
    void this.#follow(inner).then(
      () => this.#finish({}),
      (error: unknown) => this.#finish({ error }),
    )
    if (signal?.aborted) onAbort()
  }

  tell(change: FleetChange): void {
    // What the first snapshot will say need not be said before it.
    if (!this.#hasBegun || this.#end) return
    this.#queue.push(change)
    this.#wake()
  }

  tellSnapshot(): void {
    const ghosts = [...this.#overlay.ghosts()].map((record): FleetEntry => ({ kind: 'worker', record }))
    this.tell({
      type: 'snapshot',
      entries: [...this.#entries.values()].filter((entry) => this.#isSeen(entry)).concat(ghosts),
    })
  }

  tellAgain(workerId: string): void {
    const entry = this.#entries.get(`worker ${workerId}`)
    if (entry) this.tell({ type: 'entryPut', entry })
  }

  fail(error: unknown): void {
    this.#finish({ error })
  }

  async next(): Promise<IteratorResult<FleetChange>> {
    for (;;) {
      const change = this.#queue.shift()
      if (change) return { value: change, done: false }
      if (this.#end) {
        const { error } = this.#end
        this.#end = {}
        if (error !== undefined) throw error
        return { value: undefined, done: true }
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  async return(): Promise<IteratorResult<FleetChange>> {
    this.#finish({})
    return { value: undefined, done: true }
  }

  async #follow(inner: Discovery): Promise<void> {
    for await (const change of inner.watch({ signal: this.#stop.signal })) {
      if (change.type === 'snapshot') {
        this.#entries.clear()
        for (const entry of change.entries) this.#entries.set(keyOf(entry), entry)
        this.#hasBegun = true
        this.tellSnapshot()
      } else if (change.type === 'entryPut') {
        this.#entries.set(keyOf(change.entry), change.entry)
        if (this.#isSeen(change.entry) && !this.#overlay.isStalled()) this.tell(change)
      } else {
        this.#entries.delete(`${change.kind} ${change.id}`)
        const isHidden = change.kind === 'worker' && this.#overlay.isHidden(change.id)
        if (!isHidden && !this.#overlay.isStalled()) this.tell(change)
      }
    }
  }

  #isSeen(entry: FleetEntry): boolean {
    return entry.kind !== 'worker' || !this.#overlay.isHidden(entry.record.worker_id)
  }

  #finish(end: { readonly error?: unknown }): void {
    if (this.#end) return
    this.#end = end
    this.#stop.abort()
    this.#forgetSignal()
    this.#overlay.onEnd()
    this.#wake()
  }
}

function keyOf(entry: FleetEntry): string {
  return `${entry.kind} ${entry.kind === 'worker' ? entry.record.worker_id : entry.record.server_id}`
}
