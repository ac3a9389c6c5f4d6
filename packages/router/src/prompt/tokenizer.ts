import { Tokenizer } from '@huggingface/tokenizers'
import { PromptError } from '../errors.js'
import type { JsonObject } from './model-folder.js'

/** Text to token ids and back, as the Rust `tokenizers` package does it for the same tokenizer.json. */
export class PromptTokenizer {
  readonly #tokenizer: Tokenizer
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
    this.#tokenizer = new Tokenizer(tokenizerJson, config)
    this.#promptCharsMax = options.promptCharsMax
  }

  /**
   * @param options.addSpecialTokens whether the model's post-processor adds its own, such as a BOS; default false
   * @throws PromptError `INFERA_ROUTER_NOT_TOKENIZABLE` for a text beyond `promptCharsMax` or one the tokenizer refuses
   */
  encode(text: string, options: { addSpecialTokens?: boolean } = {}): Uint32Array {
    if (text.length > this.#promptCharsMax)
      throw notTokenizable(
        `the prompt has ${text.length} characters, promptCharsMax is ${this.#promptCharsMax}; raise it to tokenize such prompts`,
      )
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

  /** Ids outside the vocabulary are left out. @param options.skipSpecialTokens default false */
  decode(ids: ArrayLike<number>, options: { skipSpecialTokens?: boolean } = {}): string {
    const known = Array.from(ids).filter((id) => this.#tokenizer.id_to_token(id) !== undefined)
    if (known.length === 0) return ''
    return this.#tokenizer.decode(known, {
      skip_special_tokens: options.skipSpecialTokens ?? false,
      clean_up_tokenization_spaces: false, // engines stream raw text; the clean-up belongs to old Python tokenizers
    })
  }
}

function notTokenizable(message: string, options?: ErrorOptions): PromptError {
  return new PromptError('INFERA_ROUTER_NOT_TOKENIZABLE', message, options)
}
