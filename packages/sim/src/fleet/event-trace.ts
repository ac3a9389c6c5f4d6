import { createHash, type Hash } from 'node:crypto'

/** Everything that happened in a run, in order, as one digest; and its last lines, for whoever looks into a failure. */
export class EventTrace {
  readonly #hash: Hash = createHash('sha256')
  readonly #linesMax: number
  #lines: string[] = []
  #count = 0

  /** @param linesMax lines that are kept */
  constructor(linesMax = 2_000) {
    this.#linesMax = linesMax
  }

  get count(): number {
    return this.#count
  }

  /** The newest lines, at most as many as are kept. */
  get lines(): readonly string[] {
    return this.#lines.slice(-this.#linesMax)
  }

  /** @param atMs of the run */
  add(atMs: number, ...words: readonly (string | number | null)[]): void {
    const line = `${atMs.toFixed(3)} ${words.join(' ')}`
    this.#hash.update(line).update('\n')
    this.#count += 1
    this.#lines.push(line)
    if (this.#lines.length >= 2 * this.#linesMax) this.#lines = this.#lines.slice(-this.#linesMax)
  }

  /** Of everything so far; equal runs have equal digests. 64 hex digits. */
  digest(): string {
    return this.#hash.copy().digest('hex')
  }
}
