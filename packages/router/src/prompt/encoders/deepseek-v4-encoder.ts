// How DeepSeek-V4 writes a chat (routing specification 2.7). The family ships no chat template; its engines do this in
// code. What is not certain is refused: a prompt that is nearly right has no cached prefix, and nobody notices.

import { dumps } from '../jinja/python-text.js'
import { fromJson } from '../jinja/values.js'
import { parsePromptValue } from '../json/prompt-body.js'
import { isJsonObject, type JsonObject } from '../model-files.js'
import { notTokenizable } from '../tokenizer.js'
import type { Sections } from './deepseek-v4-sections.js'
import { hasTask, type Turn, toolCallsOf, turnsOf } from './deepseek-v4-turns.js'

const bos = '<｜begin▁of▁sentence｜>'
const eos = '<｜end▁of▁sentence｜>'
const userMark = '<｜User｜>'
const assistantMark = '<｜Assistant｜>'
const reminderMark = '<｜latest_reminder｜>'
const thinkStart = '<think>'
const thinkEnd = '</think>'
const dsml = '｜DSML｜'
const tasks = new Set(['action', 'query', 'authority', 'domain', 'title', 'read_url'])

export interface EncodeOptions {
  /** Engines use `chat`. In `thinking` the encoder of the engine differs by a token after a tool call. */
  readonly mode: 'chat' | 'thinking'
  /** The texts around tools and response formats; undefined refuses messages that need one. */
  readonly sections: Sections | undefined
}

/**
 * The text of a chat, BOS included.
 * @param messages as a client sends them; `tools` and `response_format` of a system or developer message are written
 * @throws PromptError `INFERA_ROUTER_NOT_TOKENIZABLE` for every chat whose text is not certain
 */
export function encodeDeepSeekV4(messages: unknown, options: EncodeOptions): string {
  let turns = turnsOf(messages)
  const dropsThinking = !turns.some(({ message }) => isGiven(message.tools))
  if (options.mode === 'thinking' && dropsThinking) turns = withoutOldThinking(turns)
  const state = { ...options, turns, dropsThinking, lastUser: lastUserIndex(turns) }
  return bos + turns.map((turn, index) => written(turn, index, state) + opening(turn, index, state)).join('')
}

interface State extends EncodeOptions {
  readonly turns: readonly Turn[]
  /** Whether only the reasoning behind the last user turn is shown. */
  readonly dropsThinking: boolean
  readonly lastUser: number
}

function lastUserIndex(turns: readonly Turn[]): number {
  return turns.reduce((last, { role }, index) => (isAsking(role) ? index : last), -1)
}

function isAsking(role: string): boolean {
  return role === 'user' || role === 'developer'
}

function withoutOldThinking(turns: readonly Turn[]): Turn[] {
  const lastUser = lastUserIndex(turns)
  return turns.flatMap((turn, index) => {
    if (index >= lastUser || (turn.role !== 'assistant' && turn.role !== 'developer')) return [turn]
    if (turn.role === 'developer') return []
    const { reasoning_content: _, ...message } = turn.message
    return [{ ...turn, message }]
  })
}

function written(turn: Turn, index: number, state: State): string {
  switch (turn.role) {
    case 'system':
      return turn.text + tail(turn.message, state.sections)
    case 'developer':
      if (turn.text === '')
        throw notTokenizable('a developer message without text has no form in DeepSeek-V4')
      return userMark + turn.text + tail(turn.message, state.sections)
    case 'user':
      return (
        userMark +
        turn.blocks
          .map((block) => (block.type === 'text' ? block.text : `<tool_result>${block.text}</tool_result>`))
          .join('\n\n')
      )
    case 'latest_reminder':
      return reminderMark + turn.text
    case 'assistant':
      return assistantText(turn, index, state)
    default:
      throw notTokenizable(`DeepSeek-V4 knows no role '${turn.role.slice(0, 64)}'`)
  }
}

/** What follows a message when the next one is not a turn of its own: the assistant's mark, or that of a task. */
function opening(turn: Turn, index: number, state: State): string {
  const next = state.turns[index + 1]?.role
  if (next !== undefined && next !== 'assistant' && next !== 'latest_reminder') return ''
  const isThinking = state.mode === 'thinking'
  if (hasTask(turn.message)) {
    const { task } = turn.message
    if (typeof task !== 'string' || !tasks.has(task))
      throw notTokenizable(`a task must be one of ${[...tasks].join(', ')}`)
    const start = task === 'action' ? assistantMark + (isThinking ? thinkStart : thinkEnd) : ''
    return `${start}<｜${task}｜>`
  }
  if (!isAsking(turn.role)) return ''
  return (
    assistantMark + (isThinking && (!state.dropsThinking || index >= state.lastUser) ? thinkStart : thinkEnd)
  )
}

function assistantText({ message, text }: Turn, index: number, state: State): string {
  const before = state.turns[index - 1]
  const showsThinking =
    state.mode === 'thinking' &&
    !(before && hasTask(before.message)) &&
    (!state.dropsThinking || index > state.lastUser)
  const thinking = showsThinking ? stringOr(message.reasoning_content, '') + thinkEnd : ''
  const calls = toolCallsOf(message).map(callText)
  const called = calls.length > 0 ? `\n\n<${dsml}tool_calls>\n${calls.join('\n')}\n</${dsml}tool_calls>` : ''
  return thinking + text + called + (message.wo_eos === true ? '' : eos)
}

function callText(call: unknown): string {
  const fn = isJsonObject(call) ? call.function : undefined
  if (!isJsonObject(fn) || typeof fn.name !== 'string')
    throw notTokenizable('each tool call must have a function with a name')
  const parameters = parametersOf(fn).map(([key, value]) => {
    const isText = typeof value === 'string'
    const shown = isText ? value : pythonJson(value)
    return `<${dsml}parameter name="${key}" string="${isText}">${shown}</${dsml}parameter>`
  })
  return `<${dsml}invoke name="${fn.name}">\n${parameters.join('\n')}\n</${dsml}invoke>`
}

function parametersOf({ arguments: given }: JsonObject): [string, unknown][] {
  if (given === undefined) throw notTokenizable('each tool call must have arguments')
  if (typeof given !== 'string' || !isJson(given)) return [['arguments', given]]
  const value = parsePromptValue(given)
  if (value instanceof Map) return [...value]
  // An array or a number is no object, and neither is a float that keeps its point.
  if (!isJsonObject(value) || Object.getPrototypeOf(value) !== Object.prototype)
    throw notTokenizable('the arguments of a tool call must be a JSON object')
  return Object.entries(value)
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    // Python reads numbers that are no JSON. Whether it would have read these arguments is not known here.
    if (/NaN|Infinity/.test(text))
      throw notTokenizable('the arguments of a tool call are JSON to Python alone')
    return false
  }
}

function tail({ tools, response_format: format }: JsonObject, sections: Sections | undefined): string {
  let text = ''
  if (isGiven(tools)) {
    if (!Array.isArray(tools)) throw notTokenizable('tools must be a list')
    const schemas = tools.map((tool) => pythonJson(isJsonObject(tool) ? (tool.function ?? tool) : tool))
    text += `\n\n${section(sections?.tools, 'tools')(schemas.join('\n'))}`
  }
  if (isGiven(format))
    text += `\n\n${section(sections?.responseFormat, 'a response format')(pythonJson(format))}`
  return text
}

function section<T>(found: T | undefined, what: string): T {
  if (found === undefined)
    throw notTokenizable(
      `the text around ${what} stands in encoding/encoding_dsv4.py, which the model folder does not hold or holds in a form unknown here`,
    )
  return found
}

/** Python's truth: an empty list or object counts as nothing. */
function isGiven(value: unknown): boolean {
  if (value instanceof Map) return value.size > 0
  if (typeof value === 'object' && value !== null) return Object.keys(value).length > 0
  return Boolean(value)
}

function pythonJson(value: unknown): string {
  return dumps(fromJson(value))
}

function stringOr(value: unknown, otherwise: string): string {
  return typeof value === 'string' ? value : otherwise
}
