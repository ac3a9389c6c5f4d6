import type { KvEventMessage } from '../ports/kv-events.js'

/** Charged for each held batch on top of its bytes. */
const batchOverheadBytes = 64

/**
 * Messages between a subscription and its reader, in order. Batches count towards a bound; of snapshots at most one a rank is
 * held, which replaces what is held of that rank.
 */
export class KvReaderQueue {
  readonly #boundBytes: number
  readonly #onEmpty: () => void
  #held: KvEventMessage[] = []
  #heldBytes = 0
  #ending: { readonly error?: unknown } | undefined
  #waiter: { resolve(result: IteratorResult<KvEventMessage>): void; reject(error: unknown): void } | undefined

  /** @param onEmpty called when the reader has taken the last message */
  constructor(boundBytes: number, onEmpty: () => void) {
    this.#boundBytes = boundBytes
    this.#onEmpty = onEmpty
  }

  get isEmpty(): boolean {
    return this.#held.length === 0
  }

  /** @returns false, and holds nothing new, when a batch does not fit */
  push(message: KvEventMessage): boolean {
    if (this.#ending) return true
    if (message.type === 'snapshot') this.dropRank(message.rank)
    if (this.#waiter) {
      const { resolve } = this.#waiter
      this.#waiter = undefined
      resolve({ value: message, done: false })
      return true
    }
    const costBytes = costOf(message)
    // One batch is always held, or a large one would never get through.
    if (this.#heldBytes > 0 && this.#heldBytes + costBytes > this.#boundBytes) return false
    this.#held.push(message)
    this.#heldBytes += costBytes
    return true
  }

  dropRank(rank: number): void {
    this.#held = this.#held.filter((message) => message.rank !== rank)
    this.#heldBytes = this.#held.reduce((sum, message) => sum + costOf(message), 0)
  }

  /** @param error thrown to the reader, once; without it the iteration just ends */
  end(error?: unknown): void {
    if (this.#ending) return
    this.#held = []
    this.#heldBytes = 0
    const waiter = this.#waiter
    this.#waiter = undefined
    this.#ending = waiter || error === undefined ? {} : { error }
    if (!waiter) return
    if (error === undefined) waiter.resolve({ value: undefined, done: true })
    else waiter.reject(error)
  }

  next(): Promise<IteratorResult<KvEventMessage>> {
    const message = this.#held.shift()
    if (message) {
      this.#heldBytes -= costOf(message)
      if (this.#held.length === 0) this.#onEmpty()
      return Promise.resolve({ value: message, done: false })
    }
    if (this.#ending) {
      const ending = this.#ending
      this.#ending = {}
      if ('error' in ending) return Promise.reject(ending.error)
      return Promise.resolve({ value: undefined, done: true })
    }
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject }
    })
  }
}

function costOf(message: KvEventMessage): number {
  return message.type === 'batch' ? message.payload.byteLength + batchOverheadBytes : 0
}
