import { InvalidRequestError } from '../errors.js'
import type { InferenceBody, InferencePath } from '../prompt/prompt-model.js'

/** Paths whose requests are placed on workers. */
export const inferencePaths: ReadonlySet<string> = new Set<InferencePath>([
  '/v1/chat/completions',
  '/v1/completions',
])

type Check = { readonly isRight: (value: unknown) => boolean; readonly what: string }

const isInteger = (least: number) => (value: unknown) => Number.isInteger(value) && (value as number) >= least
const isNumber = (value: unknown) => typeof value === 'number' && Number.isFinite(value)
const isText = (value: unknown) => typeof value === 'string'
const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value)

/** Optional fields; null is as good as absent. What is not here is left to the engine, which knows its own fields. */
const optionalFields: Readonly<Record<string, Check>> = {
  stream: { isRight: (value) => typeof value === 'boolean', what: 'true or false' },
  stream_options: { isRight: isObject, what: 'an object' },
  max_tokens: { isRight: isInteger(0), what: 'an integer, 0 or more' },
  max_completion_tokens: { isRight: isInteger(0), what: 'an integer, 0 or more' },
  n: { isRight: isInteger(1), what: 'an integer, 1 or more' },
  best_of: { isRight: isInteger(1), what: 'an integer, 1 or more' },
  temperature: { isRight: isNumber, what: 'a number' },
  top_p: { isRight: isNumber, what: 'a number' },
  presence_penalty: { isRight: isNumber, what: 'a number' },
  frequency_penalty: { isRight: isNumber, what: 'a number' },
  seed: { isRight: (value) => Number.isInteger(value), what: 'an integer' },
  stop: {
    isRight: (value) => isText(value) || (Array.isArray(value) && value.every(isText)),
    what: 'a string or an array of strings',
  },
  tools: { isRight: (value) => Array.isArray(value) && value.every(isObject), what: 'an array of objects' },
}

/**
 * Refuses what no engine could answer, before a worker is troubled with it.
 * @returns the name of the requested model and whether the answer is to be streamed
 * @throws InvalidRequestError naming the field and what to send
 */
export function checkInference(path: InferencePath, body: unknown): { model: string; isStream: boolean } {
  if (!isObject(body)) {
    throw new InvalidRequestError(null, 'the body must be a JSON object, such as {"model": "...", ...}')
  }
  const fields = body as InferenceBody
  const model = checkModel(fields.model)
  if (path === '/v1/chat/completions') checkMessages(fields.messages)
  else checkPrompt(fields)
  for (const [name, { isRight, what }] of Object.entries(optionalFields)) {
    const value = fields[name]
    if (value !== undefined && value !== null && !isRight(value)) {
      throw new InvalidRequestError(name, `'${name}' must be ${what}, not ${kindOf(value)}`)
    }
  }
  return { model, isStream: fields.stream === true }
}

function checkModel(model: unknown): string {
  if (model === undefined || model === null || model === '') {
    throw new InvalidRequestError(
      'model',
      "'model' is missing: send the name of a model that GET /v1/models lists",
    )
  }
  if (typeof model !== 'string') {
    throw new InvalidRequestError(
      'model',
      `'model' must be a string, the name of a model, not ${kindOf(model)}`,
    )
  }
  return model
}

function checkMessages(messages: unknown): void {
  if (messages === undefined || messages === null) {
    throw new InvalidRequestError(
      'messages',
      `'messages' is missing: send an array such as [{"role": "user", "content": "Hello"}]`,
    )
  }
  if (!Array.isArray(messages)) {
    throw new InvalidRequestError(
      'messages',
      `'messages' must be an array of messages, not ${kindOf(messages)}`,
    )
  }
  if (messages.length === 0) {
    throw new InvalidRequestError('messages', "'messages' must hold at least one message")
  }
  for (const [index, message] of messages.entries()) checkMessage(message, `messages[${index}]`)
}

function checkMessage(message: unknown, where: string): void {
  if (!isObject(message)) {
    throw new InvalidRequestError(
      where,
      `'${where}' must be an object with 'role' and 'content', not ${kindOf(message)}`,
    )
  }
  const { role, content } = message as InferenceBody
  if (typeof role !== 'string' || role === '') {
    throw new InvalidRequestError(
      `${where}.role`,
      `'${where}.role' must be a string such as 'user', not ${kindOf(role)}`,
    )
  }
  if (content === undefined || content === null || typeof content === 'string') return
  if (!Array.isArray(content)) {
    throw new InvalidRequestError(
      `${where}.content`,
      `'${where}.content' must be a string, an array of content parts, or null, not ${kindOf(content)}`,
    )
  }
  const wrong = content.findIndex((part) => !isObject(part) && typeof part !== 'string')
  if (wrong >= 0) {
    throw new InvalidRequestError(
      `${where}.content[${wrong}]`,
      `'${where}.content[${wrong}]' must be an object with 'type', not ${kindOf(content[wrong])}`,
    )
  }
}

function checkPrompt({ prompt, prompt_embeds }: InferenceBody): void {
  if (prompt === undefined || prompt === null) {
    // Engines take embeddings in place of a prompt.
    if (prompt_embeds !== undefined && prompt_embeds !== null) return
    throw new InvalidRequestError('prompt', "'prompt' is missing: send a string or an array of token ids")
  }
  if (typeof prompt === 'string' || (Array.isArray(prompt) && isPromptList(prompt))) return
  throw new InvalidRequestError(
    'prompt',
    Array.isArray(prompt) && prompt.length === 0
      ? "'prompt' must not be an empty array"
      : `'prompt' must be a string, an array of strings, or arrays of token ids (integers from 0), not ${kindOf(prompt)}`,
  )
}

function isPromptList(list: readonly unknown[]): boolean {
  if (list.length === 0) return false
  return (
    list.every(isText) ||
    list.every(isTokenId) ||
    list.every((inner) => Array.isArray(inner) && inner.length > 0 && inner.every(isTokenId))
  )
}

function isTokenId(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 0xffff_ffff
}

/** What a wrong value is, without quoting it. */
function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'such an array'
  if (typeof value === 'object') return 'an object'
  if (typeof value === 'number' || typeof value === 'boolean') return `${value}`
  return `a ${typeof value}`
}
