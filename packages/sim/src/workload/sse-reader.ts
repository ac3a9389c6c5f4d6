/** An answer that a strict client does not accept. */
export class UnreadableAnswerError extends Error {
  override readonly name = 'UnreadableAnswerError'
}

/** The server said itself that the answer failed. */
export class ToldError extends Error {
  override readonly name = 'ToldError'
  constructor(
    message: string,
    readonly code: string,
  ) {
    super(message)
  }
}

interface Chunk {
  readonly id?: unknown
  readonly error?: { readonly message?: unknown; readonly code?: unknown }
  readonly choices?: readonly {
    readonly delta?: { readonly role?: unknown; readonly content?: unknown }
    readonly text?: unknown
    readonly finish_reason?: unknown
  }[]
}

/**
 * Reads a stream of events as the strictest of clients: every event is one `data` line with JSON of one answer, the role comes
 * once and first, the reason of the end comes before the end mark, and nothing after it.
 */
export class StrictSseReader {
  readonly #isChat: boolean
  readonly #decoder = new TextDecoder('utf-8', { fatal: true })
  #rest = ''
  #text = ''
  #id: unknown
  #hasRole = false
  #hasEnded = false
  #isDone = false

  constructor(isChat: boolean) {
    this.#isChat = isChat
  }

  /** What was read so far. */
  get text(): string {
    return this.#text
  }

  /** Whether the stream may end here. */
  get isDone(): boolean {
    return this.#isDone
  }

  /** @throws UnreadableAnswerError, ToldError; what was read before it stays read */
  push(bytes: Uint8Array): void {
    try {
      this.#rest += this.#decoder.decode(bytes, { stream: true })
    } catch (error) {
      throw new UnreadableAnswerError('the stream is no UTF-8', { cause: error })
    }
    for (;;) {
      const end = this.#rest.indexOf('\n\n')
      if (end < 0) return
      const event = this.#rest.slice(0, end)
      this.#rest = this.#rest.slice(end + 2)
      this.#accept(event)
    }
  }

  /** The stream has ended. @throws UnreadableAnswerError when it may not end here */
  end(): void {
    if (this.#rest !== '') throw new UnreadableAnswerError('the stream ends inside of an event')
    if (!this.#isDone) throw new UnreadableAnswerError('the stream ends without [DONE]')
  }

  #accept(event: string): void {
    if (this.#isDone) throw new UnreadableAnswerError('an event after [DONE]')
    if (!event.startsWith('data: ')) throw new UnreadableAnswerError('an event that is no data line')
    const data = event.slice('data: '.length)
    if (data === '[DONE]') {
      if (!this.#hasEnded) throw new UnreadableAnswerError('[DONE] before any reason of the end')
      this.#isDone = true
      return
    }
    let chunk: Chunk
    try {
      chunk = JSON.parse(data) as Chunk
    } catch (error) {
      throw new UnreadableAnswerError('an event that is no JSON', { cause: error })
    }
    if (chunk.error) throw new ToldError(String(chunk.error.message), String(chunk.error.code))
    this.#id ??= chunk.id
    if (chunk.id !== this.#id || this.#id === undefined)
      throw new UnreadableAnswerError('an event of another answer')
    const choice = chunk.choices?.[0]
    if (!choice) throw new UnreadableAnswerError('an event without a choice')
    if (this.#hasEnded) throw new UnreadableAnswerError('text after the reason of the end')
    if (this.#isChat) {
      const isFirst = !this.#hasRole
      this.#hasRole = true
      if ((choice.delta?.role !== undefined) !== isFirst) {
        throw new UnreadableAnswerError('the role must come once, and first')
      }
    }
    const piece = (this.#isChat ? choice.delta?.content : choice.text) ?? ''
    if (typeof piece !== 'string') throw new UnreadableAnswerError('a piece that is no text')
    this.#text += piece
    if (typeof choice.finish_reason === 'string') this.#hasEnded = true
  }
}

/** Reads an answer that came as one object. @throws UnreadableAnswerError, ToldError */
export function readWhole(bytes: Uint8Array, isChat: boolean): string {
  let body: Chunk & {
    choices?: readonly { message?: { content?: unknown }; text?: unknown; finish_reason?: unknown }[]
  }
  try {
    body = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    throw new UnreadableAnswerError('the answer is no JSON', { cause: error })
  }
  if (body.error) throw new ToldError(String(body.error.message), String(body.error.code))
  const choice = body.choices?.[0]
  const text = isChat ? choice?.message?.content : choice?.text
  if (typeof text !== 'string' || typeof choice?.finish_reason !== 'string') {
    throw new UnreadableAnswerError('the answer has no text or no reason of its end')
  }
  return text
}
