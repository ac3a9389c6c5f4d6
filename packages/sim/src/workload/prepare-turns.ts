import type { InferenceBody, InferencePath } from '@infera/router/prompt'
import type { Oracle } from './oracle.js'
import type { PlannedConversation, PlannedTurn } from './plan-conversations.js'

/** One request, ready to be sent, with the answer that it must get. */
export interface PreparedTurn {
  readonly turn: PlannedTurn
  readonly path: InferencePath
  readonly body: InferenceBody
  /** Of a client that leaves: the beginning of it. */
  readonly expectedText: string
}

/** So much of an answer is known that its client leaves; more than any engine generates before it learns of that. */
const leftAnswerTokens = 120
/** Conversations that the oracle answers at once; an engine holds more requests than that. */
const conversationsAtOnce = 200

/** @returns the turns of each conversation, in its order */
export async function prepareTurns(
  conversations: readonly PlannedConversation[],
  model: string,
  oracle: Oracle,
): Promise<PreparedTurn[][]> {
  const prepared: PreparedTurn[][] = []
  for (let from = 0; from < conversations.length; from += conversationsAtOnce) {
    const some = conversations.slice(from, from + conversationsAtOnce)
    prepared.push(...(await Promise.all(some.map((conversation) => prepareOne(conversation, model, oracle)))))
  }
  return prepared
}

async function prepareOne(
  conversation: PlannedConversation,
  model: string,
  oracle: Oracle,
): Promise<PreparedTurn[]> {
  const { isChat, systemWords, systemTokens } = conversation
  const path = isChat ? '/v1/chat/completions' : '/v1/completions'
  const messages: object[] = [{ role: 'system', content: systemWords }]
  const tokens: number[] = [...systemTokens]
  const prepared: PreparedTurn[] = []
  for (const turn of conversation.turns) {
    const question = { role: 'user', content: turn.words }
    const prompt = isChat ? { messages: [...messages, question] } : { prompt: [...tokens, ...turn.tokens] }
    const isLeaving = turn.leavesAfterMs !== null
    const body = {
      model,
      ...prompt,
      max_tokens: turn.answerTokensMax,
      stream: turn.isStreamed,
      ...(isLeaving ? { ignore_eos: true } : {}),
    }
    const asked = isLeaving ? { ...body, max_tokens: Math.min(turn.answerTokensMax, leftAnswerTokens) } : body
    const expectedText = await oracle.answer(path, asked)
    prepared.push({ turn, path, body, expectedText })
    // A question whose client left is not asked again, and has no answer that the next one could build upon.
    if (isLeaving) continue
    messages.push(question, { role: 'assistant', content: expectedText })
    tokens.push(...turn.tokens)
  }
  return prepared
}
