/** Requests and their responses are foreground, KV events background. */
export type Priority = 'foreground' | 'background'

/** A background piece is sent after this many foreground pieces at the latest, and before any if none wait. */
const foregroundRunMax = 3

interface StreamItems<T> {
  readonly streamId: number
  readonly items: T[]
  next: StreamItems<T> | undefined
}

/**
 * Who is next to send a piece. Streams of one priority take turns, one piece each; among the pieces of one stream the order is
 * that of asking. While both wait, three foreground pieces go out for each background piece, so that neither starves.
 */
export class SendQueue<T> {
  readonly #foreground = new Lane<T>()
  readonly #background = new Lane<T>()
  #foregroundRun = 0

  get size(): number {
    return this.#foreground.size + this.#background.size
  }

  push(streamId: number, priority: Priority, item: T): void {
    const lane = priority === 'foreground' ? this.#foreground : this.#background
    lane.push(streamId, item)
  }

  shift(): T | undefined {
    const isBackgroundsTurn = this.#foreground.size === 0 || this.#foregroundRun >= foregroundRunMax
    if (this.#background.size > 0 && isBackgroundsTurn) {
      this.#foregroundRun = 0
      return this.#background.shift()
    }
    // A run counts only against background that waits.
    this.#foregroundRun = this.#background.size > 0 ? this.#foregroundRun + 1 : 0
    return this.#foreground.shift()
  }
}

/** Streams in the order of their next turn: a linked list, because its length may be thousands and both ends are used. */
class Lane<T> {
  readonly #streams = new Map<number, StreamItems<T>>()
  #head: StreamItems<T> | undefined
  #tail: StreamItems<T> | undefined
  size = 0

  push(streamId: number, item: T): void {
    this.size += 1
    const known = this.#streams.get(streamId)
    if (known) {
      known.items.push(item)
      return
    }
    const stream: StreamItems<T> = { streamId, items: [item], next: undefined }
    this.#streams.set(streamId, stream)
    this.#append(stream)
  }

  shift(): T | undefined {
    const stream = this.#head
    if (!stream) return undefined
    this.size -= 1
    this.#head = stream.next
    if (!this.#head) this.#tail = undefined
    const item = stream.items.shift()
    if (stream.items.length > 0) this.#append(stream)
    else this.#streams.delete(stream.streamId)
    return item
  }

  #append(stream: StreamItems<T>): void {
    stream.next = undefined
    if (this.#tail) this.#tail.next = stream
    else this.#head = stream
    this.#tail = stream
  }
}
