import type { PromptModel } from '@infera/router/prompt'
import { UnusableModelError } from '../errors.js'
import { commonWords } from './words.js'

const vocabularies = new WeakMap<PromptModel, OutputVocabulary>()

/** Fewer words than this do not make text in which a wrong block would be noticed. */
const wordsMin = 16

/**
 * The tokens that answers are made of, for any byte-level tokenizer: common words that are one token each, so that an answer
 * is readable and text and ids say the same. Order is that of the word list.
 */
export class OutputVocabulary {
  /** `Word`: begins an answer. Falls back to `words` where the tokenizer has none. */
  readonly openings: Uint32Array
  /** ` Word`: begins a further sentence. Falls back to `words`. */
  readonly sentenceOpenings: Uint32Array
  /** ` word` */
  readonly words: Uint32Array
  readonly comma: number | undefined
  readonly fullStop: number | undefined
  readonly #texts = new Map<number, string>()

  /**
   * The vocabulary of a prompt model; computed once for each, since engines of one process usually share theirs.
   * @throws UnusableModelError when the tokenizer has too few of the words
   */
  static of(prompt: PromptModel): OutputVocabulary {
    const known = vocabularies.get(prompt) ?? new OutputVocabulary(prompt)
    vocabularies.set(prompt, known)
    return known
  }

  private constructor(prompt: PromptModel) {
    const words = this.#tokens(prompt, (word) => ` ${word}`)
    if (words.length < wordsMin) {
      throw new UnusableModelError(
        `the tokenizer has only ${words.length} of ${commonWords.length} common words as single tokens, at least ${wordsMin} are needed; use a model with a byte-level English vocabulary`,
      )
    }
    this.words = words
    const openings = this.#tokens(prompt, capitalised)
    this.openings = openings.length > 0 ? openings : words
    const sentenceOpenings = this.#tokens(prompt, (word) => ` ${capitalised(word)}`)
    this.sentenceOpenings = sentenceOpenings.length > 0 ? sentenceOpenings : words
    this.comma = this.#token(prompt, ',')
    this.fullStop = this.#token(prompt, '.')
  }

  /** What a token of this vocabulary reads as. */
  textOf(token: number): string {
    return this.#texts.get(token) ?? ''
  }

  #tokens(prompt: PromptModel, form: (word: string) => string): Uint32Array {
    const found = commonWords.map((word) => this.#token(prompt, form(word)))
    return Uint32Array.from(found.filter((token) => token !== undefined))
  }

  /** The one token of a text, if it is one and reads as that text wherever it stands. */
  #token(prompt: PromptModel, text: string): number | undefined {
    const ids = prompt.encode(text)
    const token = ids[0]
    if (ids.length !== 1 || token === undefined) return undefined
    if (prompt.decode([token, token]) !== text + text) return undefined
    this.#texts.set(token, text)
    return token
  }
}

function capitalised(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1)
}
