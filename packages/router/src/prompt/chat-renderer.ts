import type { InferenceBody } from './prompt-model.js'

/** What an engine tokenizes for a chat request. */
export interface RenderedChat {
  readonly text: string
  /** Whether the tokenizer's own special tokens are added, unless the request says otherwise. */
  readonly addSpecialTokens: boolean
}

/** From the body of a chat request to its text: a chat template, or code where a model family has none. */
export interface ChatRenderer {
  /**
   * @throws PromptError `INFERA_ROUTER_TEMPLATE_FAILED` when the template fails or there is none,
   * `INFERA_ROUTER_NOT_TOKENIZABLE` when the body is one whose text cannot be known here
   */
  render(body: InferenceBody): RenderedChat
}
