// The messages of a chat as turns of DeepSeek-V4, which knows no tool role: results of tools are blocks of a user turn.
// Routing specification 2.7, steps 2 to 4.
import { isJsonObject, type JsonObject } from '../model-files.js'
import { notTokenizable } from '../tokenizer.js'

/** A part of a user turn. */
export type TurnBlock =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'tool_result'; readonly callId: string; readonly text: string }

/** A message with what the encoder reads of it. Only user turns have blocks; of other roles the content is the text. */
export interface Turn {
  readonly role: string
  readonly text: string
  readonly blocks: readonly TurnBlock[]
  readonly message: JsonObject
}

/**
 * @param messages of a chat request
 * @throws PromptError for messages that no engine takes, and for images and the like
 */
export function turnsOf(messages: unknown): Turn[] {
  if (!Array.isArray(messages) || messages.length === 0)
    throw notTokenizable('messages must be a list of at least one message')
  const read = messages.map(readMessage)
  if (read[0]?.role !== 'system') read.unshift({ role: 'system', text: '', blocks: [], message: {} })
  return sorted(merged(read))
}

function readMessage(message: unknown, index: number): Turn {
  const place = `messages[${index}]`
  if (!isJsonObject(message) || typeof message.role !== 'string')
    throw notTokenizable(`${place} must be an object with a string 'role'`)
  const { role, content } = message
  if (role === 'tool') {
    const { tool_call_id: id } = message
    const text = typeof content === 'string' ? content : toolText(content, place)
    const callId = typeof id === 'string' ? id : ''
    return { role, text: '', blocks: [{ type: 'tool_result', callId, text }], message: {} }
  }
  const text = messageText(content, place)
  return { role, text, message, blocks: role === 'user' ? [{ type: 'text', text }] : [] }
}

/** Tool results go into the user turn before them, and so does a user turn behind another that has no task. */
function merged(read: readonly Turn[]): Turn[] {
  const turns: Turn[] = []
  for (const turn of read) {
    const last = turns.at(-1)
    const joins =
      last?.role === 'user' && (turn.role === 'tool' || (turn.role === 'user' && !hasTask(last.message)))
    if (last && joins) turns[turns.length - 1] = { ...last, blocks: [...last.blocks, ...turn.blocks] }
    else turns.push(turn.role === 'tool' ? { ...turn, role: 'user' } : turn)
  }
  return turns
}

/** Results of tools in the order of the calls that the assistant made last; text keeps its place among them. */
function sorted(turns: readonly Turn[]): Turn[] {
  let order = new Map<string, number>()
  return turns.map((turn) => {
    if (turn.role === 'assistant') {
      const calls = toolCallsOf(turn.message)
      if (calls.length > 0) order = orderOf(calls)
      return turn
    }
    const results = turn.blocks.filter((block) => block.type === 'tool_result')
    if (results.length < 2 || order.size === 0) return turn
    const rank = (callId: string) => order.get(callId) ?? 0
    results.sort((a, b) => rank(a.callId) - rank(b.callId))
    let next = 0
    return {
      ...turn,
      blocks: turn.blocks.map((block) =>
        block.type === 'tool_result' ? (results[next++] as TurnBlock) : block,
      ),
    }
  })
}

function orderOf(calls: readonly unknown[]): Map<string, number> {
  const order = new Map<string, number>()
  for (const [index, call] of calls.entries()) {
    if (!isJsonObject(call)) continue
    const id = call.id || (isJsonObject(call.function) ? call.function.id : undefined)
    if (typeof id === 'string' && id !== '') order.set(id, index)
  }
  return order
}

export function toolCallsOf(message: JsonObject): readonly unknown[] {
  return Array.isArray(message.tool_calls) ? message.tool_calls : []
}

/** Whether a message asks for one of the model's short tasks. */
export function hasTask(message: JsonObject): boolean {
  return message.task !== undefined && message.task !== null
}

const textTypes = new Set(['text', 'input_text', 'output_text'])

/** Text parts are joined as for chat templates: the engine flattens them before its encoder sees the message. */
function messageText(content: unknown, place: string): string {
  if (content === undefined || content === null) return ''
  if (typeof content === 'string') return content
  if (!Array.isArray(content))
    throw notTokenizable(`${place}.content must be a string, a list of parts, or null`)
  const texts = content.map((part, index) => {
    if (typeof part === 'string') return part
    if (isJsonObject(part) && textTypes.has(String(part.type)) && typeof part.text === 'string')
      return part.text
    throw notTokenizable(
      `${place}.content[${index}] is no text part; only text parts are tokenized, the engine alone knows the rest`,
    )
  })
  return texts.filter((text) => text !== '').join('\n')
}

/** What a tool gave, as the encoder itself writes a list: parts that are no text are named, not shown. */
function toolText(content: unknown, place: string): string {
  if (content === undefined || content === null) return ''
  if (!Array.isArray(content))
    throw notTokenizable(`${place}.content must be a string, a list of parts, or null`)
  const texts = content.map((part, index) => {
    if (!isJsonObject(part) || typeof part.type !== 'string')
      throw notTokenizable(`${place}.content[${index}] must be an object with a string 'type'`)
    if (part.type !== 'text') return `[Unsupported ${part.type}]`
    if (typeof part.text !== 'string')
      throw notTokenizable(`${place}.content[${index}].text must be a string`)
    return part.text
  })
  return texts.join('\n\n')
}
