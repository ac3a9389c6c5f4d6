import { Tokenizer as TokenizerLibrary } from '@huggingface/tokenizers'
import { tokenBoundaries } from './json-boundaries.js'
import type { JsonObject } from './model-files.js'
import { checkLength, notTokenizable, type Tokenizer } from './tokenizer.js'

/** A tokenizer.json, as the Rust `tokenizers` package reads it. */
export class JsonTokenizer implements Tokenizer {
  readonly boundaries: readonly string[]
  readonly #tokenizer: TokenizerLibrary
  readonly #promptCharsMax: number

  /**
   * @param tokenizerJson content of tokenizer.json
   * @param options.eosToken needed by unigram models only
   * @param options.promptCharsMax longest text that is encoded, in UTF-16 code units, > 0
   * @throws Error of the tokenizer library when the content is not usable
   */
  constructor(tokenizerJson: JsonObject, options: { eosToken?: string | undefined; promptCharsMax: number }) {
    // Of tokenizer_config.json only what Rust knows too is handed on: its switches for old Python tokenizers
    // (stripping, lower-casing) would make this tokenizer differ from the engine's.
    const config = options.eosToken === undefined ? {} : { eos_token: options.eosToken }
    this.#tokenizer = new TokenizerLibrary(tokenizerJson, config)
    this.#promptCharsMax = options.promptCharsMax
    // What the file promises is tried too: a text that is not one token for the library is no boundary.
    this.boundaries = Object.freeze(
      tokenBoundaries(tokenizerJson)
        .filter(({ content, id }) => {
          const { ids } = this.#tokenizer.encode(content, { add_special_tokens: false })
          return ids.length === 1 && ids[0] === id
        })
        .map(({ content }) => content),
    )
  }

  encode(text: string, options: { addSpecialTokens?: boolean } = {}): Uint32Array {
    checkLength(text, this.#promptCharsMax)
    if (text.length === 0 && !options.addSpecialTokens) return new Uint32Array(0)
    let ids: readonly (number | undefined)[]
    try {
      ids = this.#tokenizer.encode(text, { add_special_tokens: options.addSpecialTokens ?? false }).ids
    } catch (cause) {
      throw notTokenizable('the tokenizer failed on the prompt', { cause })
    }
    const tokens = new Uint32Array(ids.length)
    for (let index = 0; index < ids.length; index++) {
      const id = ids[index]
      if (id === undefined) throw notTokenizable(`the tokenizer has no id for the token at index ${index}`)
      tokens[index] = id
    }
    return tokens
  }

  decode(ids: ArrayLike<number>, options: { skipSpecialTokens?: boolean } = {}): string {
    const known = Array.from(ids).filter((id) => this.#tokenizer.id_to_token(id) !== undefined)
    if (known.length === 0) return ''
    return this.#tokenizer.decode(known, {
      skip_special_tokens: options.skipSpecialTokens ?? false,
      clean_up_tokenization_spaces: false, // engines stream raw text; the clean-up belongs to old Python tokenizers
    })
  }
}
