import { PromptError } from '../errors.js'

/** Text to token ids and back. Immutable once built; safe to share. */
export interface Tokenizer {
  /**
   * Texts that are one token each wherever they stand, and that no other token crosses or is changed by: where a text
   * may be cut. For every text without added special tokens, `encode` of the parts around such a text, and of the text
   * itself, joined, is `encode` of the whole. Empty when nothing is known to be safe, which is always right.
   */
  readonly boundaries: readonly string[]
  /**
   * @param options.addSpecialTokens whether the model's own are added, such as a BOS; default false
   * @throws PromptError `INFERA_ROUTER_NOT_TOKENIZABLE` for a text that is too long, or one that cannot be encoded
   */
  encode(text: string, options?: { addSpecialTokens?: boolean }): Uint32Array
  /** Ids outside the vocabulary are left out. @param options.skipSpecialTokens default false */
  decode(ids: ArrayLike<number>, options?: { skipSpecialTokens?: boolean }): string
}

/** @throws PromptError when a text has more UTF-16 code units than `promptCharsMax` */
export function checkLength(text: string, promptCharsMax: number): void {
  if (text.length > promptCharsMax)
    throw notTokenizable(
      `the prompt has ${text.length} characters, promptCharsMax is ${promptCharsMax}; raise it to tokenize such prompts`,
    )
}

/** A prompt whose tokens cannot be known here. @param message without any word of the prompt */
export function notTokenizable(message: string, options?: ErrorOptions): PromptError {
  return new PromptError('INFERA_ROUTER_NOT_TOKENIZABLE', message, options)
}
