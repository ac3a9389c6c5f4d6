import type { ChatRenderer } from './chat-renderer.js'
import { completionBatch, completionTokens } from './completion-prompts.js'
import type { InferenceBody, InferencePath, PromptModel } from './prompt-model.js'
import { notTokenizable, type Tokenizer } from './tokenizer.js'
import { canaryText } from './tokenizer-digest.js'

const chatPath: InferencePath = '/v1/chat/completions'

/** What a folder gave: a tokenizer, and a way to write chats. */
export class FolderPromptModel implements PromptModel {
  readonly folder: string
  readonly tokenizerDigest: string
  readonly tokenizerCanary: readonly number[]
  readonly #tokenizer: Tokenizer
  readonly #renderer: ChatRenderer
  readonly #promptsMax: number

  constructor(parts: {
    folder: string
    tokenizerDigest: string
    tokenizer: Tokenizer
    renderer: ChatRenderer
    promptsMax: number
  }) {
    this.folder = parts.folder
    this.tokenizerDigest = parts.tokenizerDigest
    this.tokenizerCanary = Object.freeze(Array.from(parts.tokenizer.encode(canaryText)))
    this.#tokenizer = parts.tokenizer
    this.#renderer = parts.renderer
    this.#promptsMax = parts.promptsMax
  }

  renderChat(body: InferenceBody): string {
    return this.#renderer.render(body).text
  }

  encode(text: string, options?: { addSpecialTokens?: boolean }): Uint32Array {
    return this.#tokenizer.encode(text, options)
  }

  decode(ids: ArrayLike<number>, options?: { skipSpecialTokens?: boolean }): string {
    return this.#tokenizer.decode(ids, options)
  }

  tokenize(path: InferencePath, body: InferenceBody): Uint32Array {
    refuseCuts(body)
    return path === chatPath ? this.#tokenizeChat(body) : completionTokens(this.#tokenizer, body)
  }

  tokenizePrompts(path: InferencePath, body: InferenceBody): readonly Uint32Array[] {
    refuseCuts(body)
    if (path === chatPath) return [this.#tokenizeChat(body)]
    return completionBatch(this.#tokenizer, body, { promptsMax: this.#promptsMax })
  }

  #tokenizeChat(body: InferenceBody): Uint32Array {
    const { text, addSpecialTokens } = this.#renderer.render(body)
    const asked = body.add_special_tokens
    return this.encode(text, { addSpecialTokens: typeof asked === 'boolean' ? asked : addSpecialTokens })
  }
}

function refuseCuts({ truncate_prompt_tokens: cut }: InferenceBody): void {
  if (cut !== undefined && cut !== null)
    throw notTokenizable(
      'truncate_prompt_tokens lets the engine cut the prompt; where it cuts is its own matter',
    )
}
