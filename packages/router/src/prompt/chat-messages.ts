// What engines do to the messages of a chat request before a template sees them. The body itself is never changed.
import { PromptError } from '../errors.js'
import { parsePromptValue } from './json/prompt-body.js'
import { isJsonObject, type JsonObject } from './model-files.js'

/**
 * How a template wants message content: `string`, or `openai`, a list of parts that the template walks itself.
 * Found from the template's source, as vLLM does.
 */
export type ContentFormat = 'string' | 'openai'

/** A text part as templates see it. */
export interface TextPart {
  readonly type: 'text'
  readonly text: string
}

/** A message as templates see it: its own fields in its own order, content and tool calls normalised. */
export type ChatMessage = JsonObject & { readonly content: string | readonly TextPart[] }

/** Where each kind of part keeps its text. Kinds that are not listed carry no text, and so no tokens we could know. */
const textFields: Readonly<Record<string, string>> = {
  text: 'text',
  input_text: 'text',
  output_text: 'text',
  refusal: 'refusal',
  thinking: 'thinking',
}

/**
 * Messages as an engine hands them to the template: parts joined by newlines (or kept as text parts for templates
 * that walk them), absent content empty, arguments of tool calls parsed, empty lists of tool calls left out.
 * @throws PromptError `INFERA_ROUTER_NOT_TOKENIZABLE` for messages no engine could render, and for images and the like
 */
export function normalizeMessages(messages: unknown, format: ContentFormat): ChatMessage[] {
  if (!Array.isArray(messages) || messages.length === 0)
    throw notTokenizable('messages must be a list of at least one message')
  return messages.map((message, index) => normalizeMessage(message, index, format))
}

function normalizeMessage(message: unknown, index: number, format: ContentFormat): ChatMessage {
  const place = `messages[${index}]`
  if (!isJsonObject(message) || typeof message.role !== 'string')
    throw notTokenizable(`${place} must be an object with a string 'role'`)
  const { tool_calls: toolCalls, ...rest } = message
  const texts = textsOf(message.content, place)
  const normalized: Record<string, unknown> & { content: ChatMessage['content'] } = {
    ...rest, // spreads keep the order of the keys, which templates may render
    content: format === 'string' ? joined(texts) : texts.map((text) => ({ type: 'text', text })),
  }
  if (message.role === 'assistant') {
    if (Array.isArray(toolCalls) && toolCalls.length > 0)
      normalized.tool_calls = toolCalls.map((call, at) => parsedCall(call, `${place}.tool_calls[${at}]`))
    // Two names are in use for the same field; templates know the older one.
    if (typeof rest.reasoning === 'string') normalized.reasoning_content ??= rest.reasoning
  }
  return normalized
}

function joined(texts: readonly string[]): string {
  return texts.filter((text) => text !== '').join('\n')
}

function textsOf(content: unknown, place: string): string[] {
  if (content === undefined || content === null) return []
  if (typeof content === 'string') return [content]
  if (!Array.isArray(content))
    throw notTokenizable(`${place}.content must be a string, a list of parts, or null`)
  return content.map((part, index) => textOf(part, `${place}.content[${index}]`))
}

function textOf(part: unknown, place: string): string {
  if (typeof part === 'string') return part
  if (!isJsonObject(part) || typeof part.type !== 'string')
    throw notTokenizable(`${place} must be an object with a string 'type'`)
  const field = Object.hasOwn(textFields, part.type) ? textFields[part.type] : undefined
  if (field === undefined)
    throw notTokenizable(
      `${place} has type '${part.type.slice(0, 64)}'; only text parts are tokenized, the engine alone knows the rest`,
    )
  const text = part[field]
  if (typeof text !== 'string') throw notTokenizable(`${place}.${field} must be a string`)
  return text
}

function parsedCall(call: unknown, place: string): unknown {
  if (!isJsonObject(call) || !isJsonObject(call.function)) return call
  const { arguments: given } = call.function
  if (typeof given !== 'string' && given !== undefined && given !== null) return call
  return { ...call, function: { ...call.function, arguments: given ? parsed(given, place) : {} } }
}

function parsed(text: string, place: string): unknown {
  try {
    return parsePromptValue(text)
  } catch (cause) {
    throw notTokenizable(
      `${place}.function.arguments must be a string of JSON: ${cause instanceof Error ? cause.message : 'no reason'}`,
    )
  }
}

function notTokenizable(message: string): PromptError {
  return new PromptError('INFERA_ROUTER_NOT_TOKENIZABLE', message)
}
