import type { InferencePath, PromptModel } from '@infera/router/prompt'
import { PromptError } from '@infera/router/prompt'
import { z } from 'zod'
import { RequestRefusedError } from '../errors.js'

/** What an OpenAI body asks of the engine. */
export interface ParsedRequest {
  readonly promptTokens: Uint32Array
  readonly isStreamed: boolean
  readonly includesUsage: boolean
  readonly answerTokensMax: number | undefined
  readonly stopStrings: readonly string[]
  readonly requestSeed: number
  readonly ignoresEnd: boolean
}

const stopString = z.string().min(1).max(1024)
const onlyOne = (name: string) => z.literal(1, { error: `only ${name} = 1 is simulated` }).nullish()

const commonFields = {
  model: z.string().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: z.int().min(1).nullish(),
  n: onlyOne('n'),
  stop: z
    .union([stopString, z.array(stopString).max(64)], {
      error: 'must be a string or an array of at most 64 strings, none of them empty or longer than 1024',
    })
    .nullish(),
  seed: z.int().nullish(),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  ignore_eos: z.boolean().nullish(),
}

const ChatBody = z.looseObject({
  ...commonFields,
  messages: z.array(z.looseObject({ role: z.string() })).min(1),
  max_completion_tokens: z.int().min(1).nullish(),
  logprobs: z.literal(false, { error: 'log probabilities are not simulated' }).nullish(),
})

const CompletionBody = z.looseObject({
  ...commonFields,
  prompt: z.union([z.string(), z.array(z.int().min(0).max(0xffff_ffff)).min(1)], {
    error: 'must be one string or one array of token ids; batches are not simulated',
  }),
  best_of: onlyOne('best_of'),
  echo: z.literal(false, { error: 'echo is not simulated' }).nullish(),
  logprobs: z.null({ error: 'log probabilities are not simulated' }).optional(),
})

export interface RequestLimits {
  readonly model: string
  readonly modelTokensMax: number
  readonly bodyBytesMax: number
}

/**
 * Reads a request where it enters the engine.
 * @throws RequestRefusedError naming the field and what it must be
 */
export function parseRequest(
  path: InferencePath,
  body: Uint8Array,
  prompt: PromptModel,
  limits: RequestLimits,
): ParsedRequest {
  const value = parseBody(body, limits.bodyBytesMax)
  const fields =
    path === '/v1/chat/completions'
      ? parseFields(ChatBody, value)
      : { ...parseFields(CompletionBody, value), max_completion_tokens: undefined }
  if (fields.model != null && fields.model !== limits.model) {
    throw new RequestRefusedError(
      'INFERA_SIM_UNKNOWN_MODEL',
      `The model \`${fields.model}\` does not exist.`,
      'model',
    )
  }
  const isStreamed = fields.stream === true
  if (fields.stream_options != null && !isStreamed) {
    throw refused('stream_options', 'stream options can only be given with stream = true')
  }
  const promptTokens = tokenize(path, value, prompt)
  const maxField = fields.max_completion_tokens != null ? 'max_completion_tokens' : 'max_tokens'
  const answerTokensMax = fields.max_completion_tokens ?? fields.max_tokens ?? undefined
  checkLength(promptTokens.length, answerTokensMax, maxField, limits.modelTokensMax)
  return {
    promptTokens,
    isStreamed,
    includesUsage: fields.stream_options?.include_usage === true,
    answerTokensMax,
    stopStrings: typeof fields.stop === 'string' ? [fields.stop] : (fields.stop ?? []),
    requestSeed: fields.seed ?? 0,
    ignoresEnd: fields.ignore_eos === true,
  }
}

function parseBody(body: Uint8Array, bodyBytesMax: number): Record<string, unknown> {
  if (body.byteLength > bodyBytesMax) {
    throw new RequestRefusedError(
      'INFERA_SIM_BODY_TOO_LARGE',
      `the body has ${body.byteLength} bytes, at most ${bodyBytesMax} are taken`,
    )
  }
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body))
  } catch (error) {
    throw new RequestRefusedError('INFERA_SIM_INVALID_REQUEST', 'the body is not valid JSON', null, {
      cause: error,
    })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new RequestRefusedError('INFERA_SIM_INVALID_REQUEST', 'the body must be a JSON object')
  }
  return value as Record<string, unknown>
}

function parseFields<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const issue = result.error.issues[0]
  throw refused(issue?.path.join('.') || null, issue?.message ?? 'unreadable', result.error)
}

function tokenize(path: InferencePath, body: Record<string, unknown>, prompt: PromptModel): Uint32Array {
  const param = path === '/v1/chat/completions' ? 'messages' : 'prompt'
  let tokens: Uint32Array
  try {
    tokens = prompt.tokenize(path, body)
  } catch (error) {
    if (!(error instanceof PromptError)) throw error
    throw refused(param, error.message, error)
  }
  if (tokens.length === 0) throw refused(param, 'the prompt has no tokens; send at least one')
  return tokens
}

/** In vLLM's words: clients recognise them. */
function checkLength(
  promptLength: number,
  answerTokensMax: number | undefined,
  maxField: string,
  modelTokensMax: number,
): void {
  const maximum = `This model's maximum context length is ${modelTokensMax} tokens`
  if (promptLength >= modelTokensMax) {
    throw refused(
      null,
      `${maximum}. However, your request has ${promptLength} input tokens. Please reduce the length of the input messages.`,
    )
  }
  if (answerTokensMax !== undefined && promptLength + answerTokensMax > modelTokensMax) {
    throw refused(
      maxField,
      `'max_tokens' or 'max_completion_tokens' is too large: ${answerTokensMax}. ${maximum} and your request has ${promptLength} input tokens (${answerTokensMax} > ${modelTokensMax} - ${promptLength}).`,
    )
  }
}

function refused(param: string | null, message: string, cause?: unknown): RequestRefusedError {
  const text = param === null || message.includes(param) ? message : `'${param}': ${message}`
  return new RequestRefusedError(
    'INFERA_SIM_INVALID_REQUEST',
    text,
    param,
    cause === undefined ? {} : { cause },
  )
}
