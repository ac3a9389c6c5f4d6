import type { ChatRenderer, RenderedChat } from '../chat-renderer.js'
import { isJsonObject, type JsonObject } from '../model-files.js'
import type { InferenceBody } from '../prompt-model.js'
import { notTokenizable } from '../tokenizer.js'
import { encodeDeepSeekV4 } from './deepseek-v4-encoder.js'
import { type Sections, sectionsOf } from './deepseek-v4-sections.js'

/** Whether an engine writes the chats of this model by DeepSeek-V4's encoder. V4.1 has another one. */
export function isDeepSeekV4(architecture: string | undefined): boolean {
  return architecture !== undefined && /DeepseekV4(?!\d)/.test(architecture)
}

/** Fields of a body that engines hand to this encoder, each in a way of its own. */
const refusedFields = ['chat_template', 'task', 'documents', 'continue_final_message'] as const

/** Chat bodies of DeepSeek-V4 models, always in the encoder's mode `chat`. */
export class DeepSeekV4Renderer implements ChatRenderer {
  readonly #sections: Sections | undefined

  /** @param encoderSource text of encoding/encoding_dsv4.py; without it bodies with tools are refused */
  constructor(encoderSource: string | undefined) {
    this.#sections = encoderSource === undefined ? undefined : sectionsOf(encoderSource)
  }

  /** Engines tokenize this text with the tokenizer's own special tokens, although it starts with a BOS. */
  render(body: InferenceBody): RenderedChat {
    refuseUnknown(body)
    const messages = withTools(body.messages, body.tools)
    return {
      text: encodeDeepSeekV4(messages, { mode: 'chat', sections: this.#sections }),
      addSpecialTokens: true,
    }
  }
}

function refuseUnknown(body: JsonObject): void {
  const kwargs = body.chat_template_kwargs ?? {}
  if (!isJsonObject(kwargs)) throw notTokenizable('chat_template_kwargs must be an object')
  const refused = refusedFields.find((name) => isAsked(body[name]))
  if (refused !== undefined) throw notTokenizable(`${refused} is not understood for chats of DeepSeek-V4`)
  const format = body.response_format
  if (isAsked(format) && !(isJsonObject(format) && format.type === 'text'))
    throw notTokenizable('response_format: engines differ in whether a chat of DeepSeek-V4 shows it')
  if (body.add_generation_prompt === false)
    throw notTokenizable('add_generation_prompt: DeepSeek-V4 always opens the answer')
  const effort = body.reasoning_effort
  if (isAsked(effort) && effort !== 'none') throw refusedThinking('reasoning_effort')
  for (const [name, value] of Object.entries(kwargs)) {
    if (!isAsked(value)) continue
    if (name === 'thinking' || name === 'enable_thinking')
      throw refusedThinking(`chat_template_kwargs.${name}`)
    throw notTokenizable(
      `chat_template_kwargs.${name.slice(0, 64)} is not understood for chats of DeepSeek-V4`,
    )
  }
}

function isAsked(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false
}

function refusedThinking(field: string) {
  return notTokenizable(
    `${field} asks for thinking mode; chats of DeepSeek-V4 are tokenized in chat mode only, what engines write else is not certain`,
  )
}

/** The tools of a body are those of its system message, which is made where there is none. */
function withTools(messages: unknown, tools: unknown): unknown {
  if (!Array.isArray(tools) || tools.length === 0 || !Array.isArray(messages)) return messages
  const [first, ...others] = messages
  if (isJsonObject(first) && first.role === 'system') return [{ ...first, tools }, ...others]
  return [{ role: 'system', content: '', tools }, ...messages]
}
