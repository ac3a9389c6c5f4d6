import { PromptError } from '../errors.js'
import type { InferenceBody, InferencePath, PromptModel } from '../prompt/prompt-model.js'

/** A prompt model whose tokens are the bytes of the text; a chat is its contents, one after the other. For tests only. */
export class BytePromptModel implements PromptModel {
  readonly folder = 'bytes'
  readonly tokenizerDigest = '0000000000000000'
  readonly tokenizerCanary: readonly number[] = []
  /** Prompts tokenized so far. */
  tokenizedCount = 0
  /** Chats whose first message says this fail in the template. */
  readonly breaksOn = 'break the template'

  renderChat(body: InferenceBody): string {
    const messages = body.messages as { content?: unknown }[]
    if (messages[0]?.content === this.breaksOn) {
      throw new PromptError('INFERA_ROUTER_TEMPLATE_FAILED', 'the template of this test fails as asked')
    }
    return messages.map(({ content }) => String(content ?? '')).join('')
  }

  encode(text: string): Uint32Array {
    return Uint32Array.from(Buffer.from(text, 'utf8'))
  }

  decode(ids: ArrayLike<number>): string {
    return Buffer.from(Array.from(ids)).toString('utf8')
  }

  tokenize(path: InferencePath, body: InferenceBody): Uint32Array {
    this.tokenizedCount += 1
    if (path === '/v1/chat/completions') return this.encode(this.renderChat(body))
    if (typeof body.prompt === 'string') return this.encode(body.prompt)
    if (Array.isArray(body.prompt) && typeof body.prompt[0] === 'number') return Uint32Array.from(body.prompt)
    throw new PromptError('INFERA_ROUTER_NOT_TOKENIZABLE', 'a batch of prompts is not one prompt')
  }

  tokenizePrompts(path: InferencePath, body: InferenceBody): readonly Uint32Array[] {
    const { prompt } = body
    const isBatch = Array.isArray(prompt) && typeof prompt[0] !== 'number'
    if (path === '/v1/chat/completions' || !isBatch) return [this.tokenize(path, body)]
    return prompt.map((each) => this.tokenize(path, { prompt: each }))
  }
}
