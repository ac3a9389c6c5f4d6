// From the body of a chat request to the text that the engine tokenizes.
import { PromptError } from '../errors.js'
import { type ChatMessage, normalizeMessages } from './chat-messages.js'
import type { ChatTemplate } from './chat-template.js'
import { strip } from './jinja/string-methods.js'
import { isJsonObject, type JsonObject } from './model-files.js'

/** Fields of a body that templates know by the same name; `chat_template_kwargs` may set them too, and wins. */
const sharedFields = [
  'add_generation_prompt',
  'continue_final_message',
  'tools',
  'documents',
  'reasoning_effort',
]

/** Words that steer an engine's renderer, not the template; engines refuse them or act on them in ways we cannot see. */
const reservedWords = ['messages', 'chat_template', 'tokenize', 'conversation']

/** Transformers' own mark; templates may look for it. */
const continuationMark = 'CONTINUE_FINAL_MESSAGE_TAG '

/** The body's settings with those of `chat_template_kwargs` over them. */
export function templateSettings(body: JsonObject): JsonObject {
  const kwargs = body.chat_template_kwargs ?? {}
  if (!isJsonObject(kwargs)) throw notTokenizable('chat_template_kwargs must be an object')
  const reserved = reservedWords.find((word) => Object.hasOwn(kwargs, word))
  if (reserved !== undefined) throw notTokenizable(`chat_template_kwargs must not hold '${reserved}'`)
  if (body.chat_template !== undefined && body.chat_template !== null)
    throw notTokenizable(
      'chat_template in a request is not rendered; only the template of the model folder is',
    )
  const own = sharedFields.filter((name) => body[name] !== undefined && body[name] !== null)
  return { ...Object.fromEntries(own.map((name) => [name, body[name]])), ...kwargs }
}

/**
 * Renders the messages of a body.
 * @param options.settings of `templateSettings`
 * @param options.specialTokens by the names that templates use
 * @throws PromptError; only the template's own failures are `INFERA_ROUTER_TEMPLATE_FAILED`
 */
export function renderChat(
  template: ChatTemplate,
  body: JsonObject,
  options: { settings: JsonObject; specialTokens: ReadonlyMap<string, unknown> },
): string {
  const { continue_final_message: isContinued = false, ...settings } = options.settings
  const generationPrompt = settings.add_generation_prompt ?? true
  if (isContinued && generationPrompt)
    throw notTokenizable(
      'continue_final_message needs add_generation_prompt false; engines refuse both at once',
    )

  const messages = normalizeMessages(body.messages, template.contentFormat)
  const variables = new Map<string, unknown>([
    ['tools', null],
    ['documents', null],
    ...options.specialTokens,
    ...Object.entries(settings),
    ['messages', isContinued ? marked(messages) : messages],
    ['add_generation_prompt', generationPrompt],
  ])
  let rendered: string
  try {
    rendered = template.render(variables)
  } catch (cause) {
    throw templateFailed(
      `the chat template failed: ${cause instanceof Error ? cause.message : 'no reason'}`,
      { cause },
    )
  }
  return isContinued ? cutAtMark(rendered) : rendered
}

/** The messages with the mark behind the last text of the last one. */
function marked(messages: readonly ChatMessage[]): ChatMessage[] {
  const last = messages.at(-1)
  if (!last) return []
  const { content } = last
  if (typeof content === 'string')
    return [...messages.slice(0, -1), { ...last, content: content + continuationMark }]
  const part = content.at(-1)
  if (!part)
    throw notTokenizable('continue_final_message is set, but the last message has no text to continue')
  const markedContent = [...content.slice(0, -1), { ...part, text: part.text + continuationMark }]
  return [...messages.slice(0, -1), { ...last, content: markedContent }]
}

function cutAtMark(rendered: string): string {
  const at = rendered.lastIndexOf(continuationMark.trimEnd())
  if (at < 0)
    throw templateFailed('the chat template leaves out the message that continue_final_message continues')
  // A template that trims messages took the mark's own space along; what stood before it was trimmed too.
  const isUntrimmed = rendered.startsWith(continuationMark, at)
  return isUntrimmed ? rendered.slice(0, at) : strip(rendered.slice(0, at), undefined, 'right')
}

function notTokenizable(message: string): PromptError {
  return new PromptError('INFERA_ROUTER_NOT_TOKENIZABLE', message)
}

/** A template that failed: the operator's matter, and so not mixed with requests that no engine could serve. */
export function templateFailed(message: string, options?: ErrorOptions): PromptError {
  return new PromptError('INFERA_ROUTER_TEMPLATE_FAILED', message, options)
}
