import { overlappingTexts } from '../overlapping-texts.js'
import { checkLength, type Tokenizer } from '../tokenizer.js'
import { mergeBytes } from './byte-pair-merge.js'
import type { RankTable } from './rank-table.js'
import { encodableParts, textPieces } from './text-pieces.js'

/** A special token of a tiktoken model. */
export interface SpecialToken {
  readonly id: number
  readonly content: string
  /** Whether `skipSpecialTokens` leaves it out; some, such as those around tool calls, are text to a reader. */
  readonly isSkipped: boolean
}

/**
 * A tiktoken model with the pattern of Kimi models (routing specification 2.8): the text is split at special literals,
 * the longest first, and the rest is merged by ranks. No tokens are added at the start or end.
 */
export class TiktokenTokenizer implements Tokenizer {
  readonly boundaries: readonly string[]
  readonly #table: RankTable
  readonly #specialIds: ReadonlyMap<string, number>
  readonly #specialById: ReadonlyMap<number, SpecialToken>
  readonly #literals: RegExp | undefined
  readonly #promptCharsMax: number

  /**
   * @param specials contents that are not empty, of ids that are no ranks; of two with one content the last is encoded
   * @param options.promptCharsMax longest text that is encoded, in UTF-16 code units, > 0
   */
  constructor(table: RankTable, specials: readonly SpecialToken[], options: { promptCharsMax: number }) {
    this.#table = table
    this.#specialById = new Map(specials.map((special) => [special.id, special]))
    this.#specialIds = new Map(specials.map(({ content, id }) => [content, id]))
    const contents = [...this.#specialIds.keys()].sort((a, b) => b.length - a.length)
    const escaped = contents.map((content) => content.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'))
    this.#literals = escaped.length > 0 ? new RegExp(escaped.join('|'), 'g') : undefined
    this.#promptCharsMax = options.promptCharsMax
    const overlapping = overlappingTexts(contents)
    this.boundaries = Object.freeze(
      [...this.#specialIds.keys()].filter(
        (content) => !overlapping.has(content) && !/\p{Surrogate}/u.test(content),
      ),
    )
  }

  encode(text: string): Uint32Array {
    checkLength(text, this.#promptCharsMax)
    const ids: number[] = []
    let start = 0
    for (const match of this.#literals ? text.matchAll(this.#literals) : []) {
      this.#encodePlain(text.slice(start, match.index), ids)
      ids.push(this.#specialIds.get(match[0]) as number)
      start = match.index + match[0].length
    }
    this.#encodePlain(text.slice(start), ids)
    return Uint32Array.from(ids)
  }

  #encodePlain(text: string, ids: number[]): void {
    if (text === '') return
    const wellFormed = text.replace(/\p{Surrogate}/gu, '\ufffd') // halves of characters have no bytes
    for (const part of encodableParts(wellFormed))
      for (const piece of textPieces(part)) mergeBytes(byteString(piece), this.#table, ids)
  }

  decode(ids: ArrayLike<number>, options: { skipSpecialTokens?: boolean } = {}): string {
    const chunks: Buffer[] = []
    for (let index = 0; index < ids.length; index++) {
      const id = ids[index] as number
      const bytes = this.#table.bytesOf[id]
      if (bytes !== undefined) {
        chunks.push(Buffer.from(bytes, 'latin1'))
        continue
      }
      const special = this.#specialById.get(id)
      if (special && !(options.skipSpecialTokens && special.isSkipped))
        chunks.push(Buffer.from(special.content))
    }
    return Buffer.concat(chunks).toString('utf8')
  }
}

/** The UTF-8 bytes of a text, one char each; ASCII is that already. */
function byteString(text: string): string {
  return Buffer.byteLength(text) === text.length ? text : Buffer.from(text).toString('latin1')
}
