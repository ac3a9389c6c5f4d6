import type { Clock, Timer } from './ports/clock.js'

interface Entry {
  readonly atMs: number
  readonly order: number
  /** Undefined once it was cancelled. */
  callback: (() => void) | undefined
}

/**
 * A clock that stands still until it is told to move. Timers fire in order of time, then of arming, each at its own time, so
 * that a run under it repeats exactly, and costs only what it computes.
 */
export class VirtualClock implements Clock {
  #nowMs = 0
  #order = 0
  #pendingTimers = 0
  /** A binary heap, the next timer first. Cancelled ones stay in it until they come up, or until most of it is such. */
  #heap: Entry[] = []

  now(): number {
    return this.#nowMs
  }

  get pendingTimers(): number {
    return this.#pendingTimers
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const entry: Entry = { atMs: this.#nowMs + Math.max(0, delayMs), order: this.#order++, callback }
    this.#push(entry)
    this.#pendingTimers += 1
    return {
      cancel: () => {
        if (!entry.callback) return
        entry.callback = undefined
        this.#pendingTimers -= 1
        if (this.#heap.length > 64 && this.#heap.length > 4 * this.#pendingTimers) this.#dropCancelled()
      },
    }
  }

  /** Moves time by `ms`, firing what falls due on the way. */
  advance(ms: number): void {
    const endMs = this.#nowMs + ms
    while (this.#fireNext(endMs));
    this.#nowMs = endMs
  }

  /** As `advance`, but lets promises settle before each timer, so that chains of awaits move on. */
  async advanceAsync(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms
    do await settled()
    while (this.#fireNext(endMs))
    this.#nowMs = endMs
  }

  /**
   * Moves time from timer to timer, letting promises settle in between, until `isDone` says so.
   * @param options.withinMs most time that may pass, ms
   * @returns whether it was done; false once no timer is left, or none within the limit, that could change it
   */
  async runUntil(isDone: () => boolean, options: { withinMs: number }): Promise<boolean> {
    const endMs = this.#nowMs + options.withinMs
    for (;;) {
      await settled()
      if (isDone()) return true
      if (!this.#fireNext(endMs)) return false
    }
  }

  /** Fires the first timer that is due by `endMs`. @returns whether there was one */
  #fireNext(endMs: number): boolean {
    for (;;) {
      const next = this.#heap[0]
      if (!next) return false
      if (next.callback && next.atMs > endMs) return false
      this.#pop()
      const { callback } = next
      if (!callback) continue
      next.callback = undefined
      this.#pendingTimers -= 1
      this.#nowMs = next.atMs
      callback()
      return true
    }
  }

  #dropCancelled(): void {
    const kept = this.#heap.filter((entry) => entry.callback).sort((a, b) => (isBefore(a, b) ? -1 : 1))
    // A sorted array is a heap.
    this.#heap = kept
  }

  #push(entry: Entry): void {
    const heap = this.#heap
    let at = heap.length
    while (at > 0) {
      const parentAt = (at - 1) >> 1
      const parent = heap[parentAt] as Entry
      if (!isBefore(entry, parent)) break
      heap[at] = parent
      at = parentAt
    }
    heap[at] = entry
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop() as Entry
    if (heap.length === 0) return
    let at = 0
    for (;;) {
      let childAt = 2 * at + 1
      const child = heap[childAt]
      if (!child) break
      const sibling = heap[childAt + 1]
      if (sibling && isBefore(sibling, child)) childAt += 1
      const smaller = heap[childAt] as Entry
      if (!isBefore(smaller, last)) break
      heap[at] = smaller
      at = childAt
    }
    heap[at] = last
  }
}

function isBefore(a: Entry, b: Entry): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order)
}

/** Microtasks, and chains of them, run to their end before the event loop comes to an immediate. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
