import type { KvEventMessage, KvEventSource, KvEventTransport, WorkerRecord } from '@infera/fleet'

/** Batches that wait for a slow reader; beyond it they are dropped, and the reader gets the whole cache again. */
const batchesMax = 1024

/** Brings the cache events of engines to a router of the same process. */
export class InProcessKvEvents implements KvEventTransport {
  readonly kind = 'in-process'
  readonly #sourceOf: (worker: WorkerRecord) => KvEventSource | undefined

  constructor(sourceOf: (worker: WorkerRecord) => KvEventSource | undefined) {
    this.#sourceOf = sourceOf
  }

  serves(worker: WorkerRecord): boolean {
    return this.#sourceOf(worker) !== undefined
  }

  /** First the cache as it is now, then every change of it. */
  async *subscribe(worker: WorkerRecord, { signal }: { signal?: AbortSignal } = {}) {
    const source = this.#sourceOf(worker)
    if (!source) return
    const batches: KvEventMessage[] = []
    let isSnapshotDue = true
    let wake = () => {}
    const onAbort = () => wake()
    signal?.addEventListener('abort', onAbort)
    const unsubscribe = source.subscribe((batch) => {
      isSnapshotDue ||= batches.push({ type: 'batch', ...batch }) > batchesMax
      wake()
    })
    try {
      while (!signal?.aborted) {
        const next = batches.shift()
        if (isSnapshotDue) {
          isSnapshotDue = false
          batches.length = 0 // the snapshot has them in it
          const { sequence, payloads } = source.snapshot(0)
          yield { type: 'snapshot', rank: 0, sequence, payloads: [...payloads] } satisfies KvEventMessage
        } else if (next) yield next
        else {
          await new Promise<void>((resolve) => {
            wake = resolve
          })
        }
      }
    } finally {
      unsubscribe()
      signal?.removeEventListener('abort', onAbort)
    }
  }
}
