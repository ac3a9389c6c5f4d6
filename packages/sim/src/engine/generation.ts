import { StopFilter } from './stop-filter.js'

export type FinishReason = 'stop' | 'length'

/** One token's part of an answer. Its text is empty while it may still turn out to be a stop string. */
export interface GeneratedPiece {
  readonly text: string
  /** Set on the last piece only. */
  readonly finishReason: FinishReason | null
}

export interface GenerationListener {
  /** The answer has ended or failed. Called once. */
  settled(): void
  /** The reader left before that. */
  abandoned(): void
}

/**
 * An answer on its way from the engine to one reader. It holds at most one piece for each token the request may generate, so
 * its bound is the request's own; the engine does not wait for a slow reader.
 */
export class Generation implements AsyncIterable<GeneratedPiece> {
  readonly #filter: StopFilter
  readonly #listener: GenerationListener
  #pieces: GeneratedPiece[] = []
  #taken = 0
  #isFinished = false
  #failure: { readonly error: unknown } | undefined
  #wake: (() => void) | undefined

  constructor(stopStrings: readonly string[], listener: GenerationListener) {
    this.#filter = new StopFilter(stopStrings)
    this.#listener = listener
  }

  get isSettled(): boolean {
    return this.#isFinished || this.#failure !== undefined
  }

  /**
   * Takes in one token's text.
   * @param lastReason why the answer ends with this token, null when it goes on
   * @returns whether the answer has ended, which a stop string can bring about too
   */
  accept(text: string, lastReason: FinishReason | null): boolean {
    const visible = this.#filter.push(text)
    if (this.#filter.isMatched) this.#push({ text: visible, finishReason: 'stop' })
    else if (lastReason) this.#push({ text: visible + this.#filter.flush(), finishReason: lastReason })
    else this.#push({ text: visible, finishReason: null })
    return this.#isFinished
  }

  /** Ends the answer with an error, after what was already generated. Nothing happens when it has ended. */
  fail(error: unknown): void {
    if (this.isSettled) return
    this.#failure = { error }
    this.#listener.settled()
    this.#wake?.()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<GeneratedPiece, void, void> {
    try {
      for (;;) {
        const piece = this.#take()
        if (piece) {
          yield piece
          if (piece.finishReason) return
        } else if (this.#failure) {
          throw this.#failure.error
        } else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve
          })
        }
      }
    } finally {
      if (!this.isSettled) this.#listener.abandoned()
    }
  }

  #push(piece: GeneratedPiece): void {
    this.#pieces.push(piece)
    if (piece.finishReason) {
      this.#isFinished = true
      this.#listener.settled()
    }
    this.#wake?.()
  }

  #take(): GeneratedPiece | undefined {
    const piece = this.#pieces[this.#taken]
    if (piece) {
      this.#taken++
    } else if (this.#taken > 0) {
      this.#pieces = []
      this.#taken = 0
    }
    return piece
  }
}
