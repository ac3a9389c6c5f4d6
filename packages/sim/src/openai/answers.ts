import type { InferencePath } from '@infera/router/prompt'
import type { RunningRequest } from '../engine/engine-core.js'
import type { FinishReason } from '../engine/generation.js'

/** What all objects of one answer have in common. */
export interface AnswerIdentity {
  readonly path: InferencePath
  readonly id: string
  readonly model: string
  /** Unix seconds. */
  readonly created: number
}

/** Token counts as OpenAI writes them, `cached_tokens` always with them. */
export interface Usage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
  readonly prompt_tokens_details: { readonly cached_tokens: number }
}

const done = 'data: [DONE]\n\n'

export function usageOf(promptTokens: number, running: RunningRequest): Usage {
  const completionTokens = running.generatedTokens()
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: running.cachedTokens() },
  }
}

/** The whole answer as one object. */
export function unaryAnswer(
  identity: AnswerIdentity,
  text: string,
  finishReason: FinishReason,
  usage: Usage,
): object {
  const isChat = identity.path === '/v1/chat/completions'
  const content = isChat ? { message: { role: 'assistant', content: text } } : { text }
  return {
    ...head(identity, isChat ? 'chat.completion' : 'text_completion'),
    choices: [{ index: 0, ...content, logprobs: null, finish_reason: finishReason }],
    usage,
  }
}

/**
 * The answer as server-sent events, one for each array element: for a chat the role first, then pieces of text, then the
 * reason of the end, the usage if asked for, and the end mark. Nothing is sent before the first token exists, so that the
 * first byte means what it says.
 */
export async function* streamedAnswer(
  identity: AnswerIdentity,
  running: RunningRequest,
  usage: (() => Usage) | undefined,
): AsyncGenerator<string, void, void> {
  const isChat = identity.path === '/v1/chat/completions'
  const object = isChat ? 'chat.completion.chunk' : 'text_completion'
  const event = (choices: readonly object[], more: object = {}) =>
    `data: ${JSON.stringify({ ...head(identity, object), choices, ...more })}\n\n`
  const piece = (delta: object, finishReason: FinishReason | null) =>
    event([{ index: 0, ...delta, logprobs: null, finish_reason: finishReason }])
  let isFirst = true
  for await (const { text, finishReason } of running.generation) {
    if (isFirst && isChat) yield piece({ delta: { role: 'assistant', content: '' } }, null)
    isFirst = false
    if (text !== '') yield piece(isChat ? { delta: { content: text } } : { text }, null)
    if (finishReason) yield piece(isChat ? { delta: {} } : { text: '' }, finishReason)
  }
  if (usage) yield event([], { usage: usage() })
  yield done
}

function head({ id, created, model }: AnswerIdentity, object: string) {
  return { id, object, created, model }
}
