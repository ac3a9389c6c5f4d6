import type { MemoryLedger } from './memory-ledger.js'

/** Blocks of one call, which expire together. */
export interface OptimisticRun {
  readonly holder: number
  readonly generation: number
  /** In halves, two per block; the queue's own. */
  readonly halves: Int32Array
  readonly deadlineMs: number
}

/** Optimistic blocks in the order in which they expire; deadlines never decrease. */
export class OptimisticQueue {
  readonly #ledger: MemoryLedger
  #runs: OptimisticRun[] = []
  #doneCount = 0
  #blockCount = 0

  constructor(ledger: MemoryLedger) {
    this.#ledger = ledger
  }

  /** Blocks that wait to expire, those of cleared and removed targets included. */
  get blockCount(): number {
    return this.#blockCount
  }

  /** False, with nothing taken, when there is no memory. */
  push(run: OptimisticRun): boolean {
    if (!this.#ledger.tryTake(run.halves.byteLength)) return false
    this.#runs.push(run)
    this.#blockCount += run.halves.length / 2
    return true
  }

  /** The first run that is due, taken out; undefined when none is. */
  shiftDue(nowMs: number): OptimisticRun | undefined {
    const run = this.#runs[this.#doneCount]
    if (run === undefined || run.deadlineMs > nowMs) return undefined
    this.#doneCount++
    this.#blockCount -= run.halves.length / 2
    this.#ledger.giveBack(run.halves.byteLength)
    if (this.#doneCount * 2 >= this.#runs.length) {
      this.#runs = this.#runs.slice(this.#doneCount)
      this.#doneCount = 0
    }
    return run
  }
}
