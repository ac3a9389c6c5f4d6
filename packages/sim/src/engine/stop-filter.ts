/**
 * Looks for stop strings in text that arrives in pieces. Text that may be the beginning of one is held back; what came
 * before a match is let through, the match and everything after it is not.
 */
export class StopFilter {
  readonly #stopStrings: readonly string[]
  #held = ''
  #isMatched = false

  constructor(stopStrings: readonly string[]) {
    this.#stopStrings = stopStrings
  }

  get isMatched(): boolean {
    return this.#isMatched
  }

  /** @returns the text that is certainly part of the answer */
  push(text: string): string {
    if (this.#isMatched) return ''
    if (this.#stopStrings.length === 0) return text
    const seen = this.#held + text
    const starts = this.#stopStrings.map((stop) => seen.indexOf(stop)).filter((start) => start >= 0)
    if (starts.length > 0) {
      this.#isMatched = true
      this.#held = ''
      return seen.slice(0, Math.min(...starts))
    }
    const heldLength = Math.max(...this.#stopStrings.map((stop) => beginningAtEnd(seen, stop)))
    this.#held = seen.slice(seen.length - heldLength)
    return seen.slice(0, seen.length - heldLength)
  }

  /** @returns the text held back, which turned out to be no stop string because the answer is over */
  flush(): string {
    const held = this.#held
    this.#held = ''
    return held
  }
}

/** Length of the longest end of `text` that begins `stop`. */
function beginningAtEnd(text: string, stop: string): number {
  for (let length = Math.min(stop.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(stop.slice(0, length))) return length
  }
  return 0
}
