// A chat is sent again with each turn, and nearly all of it was tokenized the last time. Where a tokenizer says that texts
// may be cut, the parts between the cuts are looked up, and only those that are new are encoded.
import { LRUCache } from 'lru-cache'
import { checkLength, type Tokenizer } from '../tokenizer.js'

/** What an entry takes beside its text and tokens: the list's links, the map's slot, the headers of string and array. */
const entryOverheadBytes = 256

/** A tokenizer that remembers the parts of the texts that it encoded. Its answers are those of the one within. */
export class SegmentTokenizer implements Tokenizer {
  readonly boundaries: readonly string[]
  readonly #inner: Tokenizer
  readonly #promptCharsMax: number
  readonly #cuts: RegExp | undefined
  readonly #segments: LRUCache<string, Uint32Array>

  /**
   * @param inner keeps to what `Tokenizer.boundaries` promises
   * @param options.cacheBytes most memory that remembered texts and tokens take, > 0
   * @param options.promptCharsMax longest text that is encoded, in UTF-16 code units, > 0
   */
  constructor(inner: Tokenizer, options: { cacheBytes: number; promptCharsMax: number }) {
    this.#inner = inner
    this.boundaries = inner.boundaries
    this.#promptCharsMax = options.promptCharsMax
    this.#cuts = cutsAt(inner.boundaries)
    this.#segments = new LRUCache({
      maxSize: options.cacheBytes,
      sizeCalculation: (tokens, text) => 2 * text.length + 4 * tokens.length + entryOverheadBytes,
    })
  }

  encode(text: string, options: { addSpecialTokens?: boolean } = {}): Uint32Array {
    // What a model adds may depend on the text as a whole.
    if (options.addSpecialTokens) return this.#inner.encode(text, options)
    checkLength(text, this.#promptCharsMax)
    const parts: Uint32Array[] = []
    let start = 0
    if (this.#cuts) {
      this.#cuts.lastIndex = 0
      for (let cut = this.#cuts.exec(text); cut !== null; cut = this.#cuts.exec(text)) {
        const [boundary] = cut
        if (cut.index > start) parts.push(this.#segment(text.slice(start, cut.index)))
        parts.push(this.#segment(boundary))
        start = cut.index + boundary.length
      }
    }
    if (start < text.length) parts.push(this.#segment(text.slice(start)))
    return joined(parts)
  }

  decode(ids: ArrayLike<number>, options?: { skipSpecialTokens?: boolean }): string {
    return this.#inner.decode(ids, options)
  }

  #segment(text: string): Uint32Array {
    const known = this.#segments.get(text)
    if (known) return known
    const tokens = this.#inner.encode(text)
    this.#segments.set(detached(text), tokens)
    return tokens
  }
}

function cutsAt(boundaries: readonly string[]): RegExp | undefined {
  if (boundaries.length === 0) return undefined
  const escaped = [...boundaries]
    .sort((a, b) => b.length - a.length)
    .map((text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'))
  return new RegExp(escaped.join('|'), 'g')
}

/** A new array always: callers may give its memory away, and what is remembered must stay. */
function joined(parts: readonly Uint32Array[]): Uint32Array {
  const tokens = new Uint32Array(parts.reduce((sum, { length }) => sum + length, 0))
  let offset = 0
  for (const part of parts) {
    tokens.set(part, offset)
    offset += part.length
  }
  return tokens
}

/** The same text in memory of its own. V8 keeps a part as a reference into the whole, which would stay as long as it. */
function detached(text: string): string {
  const isLatin1 = !/[^\0-\xff]/.test(text)
  const encoding = isLatin1 ? 'latin1' : 'utf16le'
  return Buffer.from(text, encoding).toString(encoding)
}
