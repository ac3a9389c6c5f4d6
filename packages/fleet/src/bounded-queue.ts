interface Item<T> {
  readonly value: T
  readonly sizeBytes: number
}

interface Waiter<T> {
  resolve(result: IteratorResult<T>): void
  reject(error: unknown): void
}

/**
 * What one producer hands to one consumer, in order, within a bound of bytes. The producer never waits: at the bound
 * `push` says no, and its caller decides what that means. Items pushed before `end` or `fail` are still delivered,
 * unless they were cleared.
 */
export class BoundedQueue<T> implements AsyncIterableIterator<T> {
  readonly #boundBytes: number
  readonly #onReturn: () => void
  readonly #onRelease: (sizeBytes: number) => void
  #items: Item<T>[] = []
  #headIndex = 0
  #heldBytes = 0
  #ending: { readonly error?: unknown } | undefined
  #waiter: Waiter<T> | undefined

  /**
   * @param boundBytes most bytes held at once
   * @param options.onReturn called once if the consumer stops before the end
   * @param options.onRelease called when what was pushed has left, with its size: taken by the consumer, or cleared
   */
  constructor(
    boundBytes: number,
    options: { readonly onReturn?: () => void; readonly onRelease?: (sizeBytes: number) => void } = {},
  ) {
    this.#boundBytes = boundBytes
    this.#onReturn = options.onReturn ?? (() => {})
    this.#onRelease = options.onRelease ?? (() => {})
  }

  get heldBytes(): number {
    return this.#heldBytes
  }

  /** Whether `end` or `fail` was called, or the consumer left. */
  get isEnded(): boolean {
    return this.#ending !== undefined
  }

  /** Whether the consumer waits, so that the next item is not held. */
  get isAwaited(): boolean {
    return this.#waiter !== undefined
  }

  /** @returns false, and holds nothing new, when the item would not fit. After the end items are dropped silently. */
  push(value: T, sizeBytes: number): boolean {
    if (this.#ending) {
      this.#onRelease(sizeBytes)
      return true
    }
    if (this.#waiter) {
      this.#settle((waiter) => waiter.resolve({ value, done: false }))
      this.#onRelease(sizeBytes)
      return true
    }
    if (this.#heldBytes + sizeBytes > this.#boundBytes) return false
    this.#items.push({ value, sizeBytes })
    this.#heldBytes += sizeBytes
    return true
  }

  end(): void {
    if (this.#ending) return
    this.#ending = {}
    this.#settle((waiter) => waiter.resolve({ value: undefined, done: true }))
  }

  fail(error: unknown): void {
    if (this.#ending) return
    // An error that nobody waits for is kept for the next `next`.
    const waited = this.#settle((waiter) => waiter.reject(error))
    this.#ending = waited ? {} : { error }
  }

  /** Drops what is held. */
  clear(): void {
    const droppedBytes = this.#heldBytes
    this.#items = []
    this.#headIndex = 0
    this.#heldBytes = 0
    if (droppedBytes > 0) this.#onRelease(droppedBytes)
  }

  next(): Promise<IteratorResult<T>> {
    const item = this.#shift()
    if (item) return Promise.resolve({ value: item.value, done: false })
    if (this.#ending) {
      const ending = this.#ending
      if (!('error' in ending)) return Promise.resolve({ value: undefined, done: true })
      this.#ending = {}
      return Promise.reject(ending.error)
    }
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject }
    })
  }

  return(): Promise<IteratorResult<T>> {
    const wasOpen = !this.#ending
    this.end()
    if (wasOpen) this.#onReturn()
    this.clear()
    return Promise.resolve({ value: undefined, done: true })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #shift(): Item<T> | undefined {
    const item = this.#items[this.#headIndex]
    if (!item) return undefined
    this.#headIndex += 1
    this.#heldBytes -= item.sizeBytes
    // Compacts now and then: shifting the array for each item would cost its whole length every time.
    if (this.#headIndex === this.#items.length || this.#headIndex >= 1024) {
      this.#items = this.#items.slice(this.#headIndex)
      this.#headIndex = 0
    }
    if (item.sizeBytes > 0) this.#onRelease(item.sizeBytes)
    return item
  }

  #settle(use: (waiter: Waiter<T>) => void): boolean {
    const waiter = this.#waiter
    if (!waiter) return false
    this.#waiter = undefined
    use(waiter)
    return true
  }
}
