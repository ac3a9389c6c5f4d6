/** The two request shapes that carry a prompt. */
export type InferencePath = '/v1/chat/completions' | '/v1/completions'

/** A parsed request body; only the fields that a prompt is made of are read. */
export type InferenceBody = Readonly<Record<string, unknown>>

/** One model's chat template and tokenizer, loaded from a folder. Immutable; safe to share. */
export interface PromptModel {
  /** Where it came from, as given. */
  readonly folder: string
  /** First 16 hex digits of the SHA-256 that fleet.md section 2 defines. */
  readonly tokenizerDigest: string
  /** Token ids of the fleet's canary string, no special tokens added. */
  readonly tokenizerCanary: readonly number[]
  /**
   * The prompt text of a chat request, as an engine renders it: tools, `chat_template_kwargs`, `add_generation_prompt`
   * (default true) and `continue_final_message` included; text parts joined; tool-call arguments parsed to objects.
   * @throws PromptError `INFERA_ROUTER_TEMPLATE_FAILED` when the template fails or there is none,
   * `INFERA_ROUTER_NOT_TOKENIZABLE` when the body is one that no engine renders, or one with images and the like
   */
  renderChat(body: InferenceBody): string
  /** Token ids of a text. @param options.addSpecialTokens default false */
  encode(text: string, options?: { addSpecialTokens?: boolean }): Uint32Array
  /** Text of token ids. @param options.skipSpecialTokens default false */
  decode(ids: ArrayLike<number>, options?: { skipSpecialTokens?: boolean }): string
  /**
   * Token ids of a request's prompt, exactly those that an engine computes on: chat bodies rendered and encoded without
   * special tokens (`add_special_tokens: true` adds them), completion strings with them (`add_special_tokens: false`
   * turns them off), token arrays as they are. A batch of prompts is not one prompt.
   * @throws PromptError when the body carries no prompt that can be tokenized
   */
  tokenize(path: InferencePath, body: InferenceBody): Uint32Array
  /**
   * Token ids of each prompt of a request: of a batch (`prompt: ["a", "b"]` or `[[1, 2], [3]]`) one for each entry, in
   * order; else the one of `tokenize`.
   * @throws PromptError as `tokenize`, and for a batch beyond the model's bound
   */
  tokenizePrompts(path: InferencePath, body: InferenceBody): readonly Uint32Array[]
}
