// The JSON of a client as Python sees it. A template may print any value of a request, and then the order of keys, a
// `1.0` and an id beyond 2^53 are part of the prompt.
import { PromptError } from '../../errors.js'
import type { InferenceBody } from '../prompt-model.js'
import { scanJson } from './json-scan.js'
import { type JsonPath, type OrderedJsonOptions, parseOrderedJson } from './ordered-json.js'

/** Levels of lists and objects that are read; Python gives up at about twice as many. */
export const jsonDepthMax = 512

/** The fields of a body that templates see. All others are as JSON.parse makes them. */
const templateFields = new Set([
  'messages',
  'tools',
  'documents',
  'chat_template_kwargs',
  'reasoning_effort',
  'add_generation_prompt',
  'continue_final_message',
])

/** Objects whose fields are read by name before a template sees them; they stay plain objects. */
const readFields = [
  [],
  ['chat_template_kwargs'],
  ['messages', 0],
  ['messages', 0, 'content', 0],
  ['messages', 0, 'tool_calls', 0],
  ['messages', 0, 'tool_calls', 0, 'function'],
] as const

function isRead(path: JsonPath): boolean {
  return readFields.some(
    (shape) =>
      shape.length === path.length &&
      shape.every((step, index) => (step === 0 ? typeof path[index] === 'number' : step === path[index])),
  )
}

const bodyOptions: OrderedJsonOptions = { isPlain: isRead, isLossy: (key) => !templateFields.has(key) }

/**
 * The body of a request for templates. As JSON.parse, except that in the fields which templates see objects whose keys
 * JavaScript would reorder are Maps, whole floats (`1.0`) are `FloatNumber`s and integers beyond 2^53 are bigints. The
 * body itself, messages, content parts, tool calls and `chat_template_kwargs` are plain objects always.
 * @throws PromptError `INFERA_ROUTER_NOT_TOKENIZABLE` for text that is no JSON object, is nested deeper than
 * `jsonDepthMax`, or holds an integer that Python would not read
 */
export function parsePromptBody(text: string): InferenceBody {
  const body = parseJson(text, bodyOptions)
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw notTokenizable('the body must be a JSON object')
  return body as InferenceBody
}

/**
 * A JSON text inside a body, as the arguments of a tool call are. As `parsePromptBody`, but any value, and no object is
 * excepted.
 * @throws PromptError as `parsePromptBody`
 */
export function parsePromptValue(text: string): unknown {
  return parseJson(text, {})
}

function parseJson(text: string, options: OrderedJsonOptions): unknown {
  let plain: unknown
  try {
    plain = JSON.parse(text) // also when its result is not used: it alone decides what is JSON
  } catch {
    throw notTokenizable('the text is not JSON') // the parser's own message would quote it
  }
  const { isLossless, depth } = scanJson(text)
  if (depth > jsonDepthMax)
    throw notTokenizable(`the JSON is nested ${depth} levels deep; the most is ${jsonDepthMax}`)
  if (isLossless) return plain
  try {
    return parseOrderedJson(text, options)
  } catch (cause) {
    if (cause instanceof RangeError) throw notTokenizable(`the JSON holds ${cause.message}`)
    throw cause
  }
}

function notTokenizable(message: string): PromptError {
  return new PromptError('INFERA_ROUTER_NOT_TOKENIZABLE', message)
}
