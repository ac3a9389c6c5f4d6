import type { TransportError } from './errors.js'
import type { KvEventMessage, KvViewMessage } from './ports/kv-events.js'

type Message = KvEventMessage | KvViewMessage

/** Charged for each held batch on top of its bytes. */
const batchOverheadBytes = 64

interface Held<M> {
  readonly message: M
  readonly costBytes: number
}

/**
 * Messages between a subscription and its reader, in order. Live batches count towards a bound. Snapshots and what repairs a gap
 * have bounds of their own, and always fit; a snapshot replaces what is held of its rank.
 */
export class KvReaderQueue<M extends Message = KvEventMessage> {
  readonly #boundBytes: number
  readonly #onTaken: () => void
  #held: Held<M>[] = []
  #headIndex = 0
  #heldBytes = 0
  #ending: { readonly error?: TransportError } | undefined
  #waiter: { resolve(result: IteratorResult<M>): void; reject(error: TransportError): void } | undefined

  /** @param onTaken called when the reader has come for a message, whether or not there was one */
  constructor(boundBytes: number, onTaken: () => void) {
    this.#boundBytes = boundBytes
    this.#onTaken = onTaken
  }

  get isEmpty(): boolean {
    return this.#headIndex === this.#held.length
  }

  /** Whether the reader has taken everything of a rank, of one kind if that is given. */
  isDrained(rank: number, type?: M['type']): boolean {
    for (let index = this.#headIndex; index < this.#held.length; index++) {
      const message = this.#held[index]?.message
      if (message?.rank === rank && (type === undefined || message.type === type)) return false
    }
    return true
  }

  /** @returns false, and holds nothing new, when a live batch does not fit */
  push(message: M, options: { readonly isRepair?: boolean } = {}): boolean {
    if (this.#ending) return true
    if (message.type !== 'batch') this.dropRank(message.rank)
    const waiter = this.#waiter
    if (waiter) {
      this.#waiter = undefined
      waiter.resolve({ value: message, done: false })
      return true
    }
    const isFree = message.type !== 'batch' || options.isRepair === true
    const costBytes = isFree ? 0 : message.payload.byteLength + batchOverheadBytes
    // One batch is always held, or a large one would never get through.
    if (this.#heldBytes > 0 && this.#heldBytes + costBytes > this.#boundBytes) {
      if (!isFree) return false
    }
    this.#held.push({ message, costBytes })
    this.#heldBytes += costBytes
    return true
  }

  dropRank(rank: number): void {
    this.#held = this.#held.slice(this.#headIndex).filter(({ message }) => message.rank !== rank)
    this.#headIndex = 0
    this.#heldBytes = this.#held.reduce((sum, { costBytes }) => sum + costBytes, 0)
  }

  /** @param error thrown to the reader, once; without it the iteration just ends */
  end(error?: TransportError): void {
    if (this.#ending) return
    this.#held = []
    this.#headIndex = 0
    this.#heldBytes = 0
    const waiter = this.#waiter
    this.#waiter = undefined
    this.#ending = waiter || !error ? {} : { error }
    if (!waiter) return
    if (error) waiter.reject(error)
    else waiter.resolve({ value: undefined, done: true })
  }

  next(): Promise<IteratorResult<M>> {
    const held = this.#shift()
    if (held) {
      this.#onTaken()
      return Promise.resolve({ value: held.message, done: false })
    }
    if (this.#ending) {
      const { error } = this.#ending
      this.#ending = {}
      return error ? Promise.reject(error) : Promise.resolve({ value: undefined, done: true })
    }
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject }
      this.#onTaken()
    })
  }

  #shift(): Held<M> | undefined {
    const held = this.#held[this.#headIndex]
    if (!held) return undefined
    this.#headIndex += 1
    this.#heldBytes -= held.costBytes
    // Compacts now and then: shifting the array for each message would cost its whole length every time.
    if (this.#headIndex === this.#held.length || this.#headIndex >= 1024) {
      this.#held = this.#held.slice(this.#headIndex)
      this.#headIndex = 0
    }
    return held
  }
}
