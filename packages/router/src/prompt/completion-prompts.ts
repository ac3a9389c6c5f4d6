// What a completion request may carry as its prompt: a text, token ids, or a batch of either.
import type { JsonObject } from './model-files.js'
import { notTokenizable, type Tokenizer } from './tokenizer.js'

/**
 * The tokens of a prompt that is not a batch. Engines add the tokenizer's own special tokens to texts unless told not
 * to, also to one that starts with a BOS already, which then stands there twice.
 * @throws PromptError for a batch, and for what is no prompt
 */
export function completionTokens(tokenizer: Tokenizer, body: JsonObject): Uint32Array {
  const { prompt } = body
  if (isBatch(prompt))
    throw notTokenizable('prompt is a batch; tokenize asks for one prompt, tokenizePrompts for all of them')
  return tokensOf(tokenizer, prompt, { place: 'prompt', addSpecialTokens: body.add_special_tokens !== false })
}

/**
 * The tokens of each prompt of a request, in order.
 * @param options.promptsMax most prompts in a batch, > 0
 * @throws PromptError for a batch that is larger, and for what is no prompt
 */
export function completionBatch(
  tokenizer: Tokenizer,
  body: JsonObject,
  { promptsMax }: { promptsMax: number },
): readonly Uint32Array[] {
  const { prompt } = body
  if (!isBatch(prompt)) return [completionTokens(tokenizer, body)]
  if (prompt.length > promptsMax)
    throw notTokenizable(
      `prompt is a batch of ${prompt.length}, promptsMax is ${promptsMax}; send fewer, or raise it`,
    )
  const kind = typeof prompt[0]
  const addSpecialTokens = body.add_special_tokens !== false
  return prompt.map((entry, index) => {
    const place = `prompt[${index}]`
    if (typeof entry !== kind)
      throw notTokenizable(`${place} must be of one kind with the others of its batch`)
    return tokensOf(tokenizer, entry, { place, addSpecialTokens })
  })
}

function isBatch(prompt: unknown): prompt is readonly unknown[] {
  return Array.isArray(prompt) && (typeof prompt[0] === 'string' || Array.isArray(prompt[0]))
}

function tokensOf(
  tokenizer: Tokenizer,
  prompt: unknown,
  options: { place: string; addSpecialTokens: boolean },
): Uint32Array {
  const { place, addSpecialTokens } = options
  if (typeof prompt === 'string') return tokenizer.encode(prompt, { addSpecialTokens })
  if (!Array.isArray(prompt)) throw notTokenizable(`${place} must be a string or a list of token ids`)
  if (prompt.length === 0)
    throw notTokenizable(`${place} is an empty list; it must hold at least one token id`)
  const tokens = new Uint32Array(prompt.length)
  for (const [index, token] of prompt.entries()) {
    if (typeof token !== 'number' || !Number.isInteger(token) || token < 0 || token > 0xffff_ffff)
      throw notTokenizable(`${place}[${index}] must be a token id, an integer from 0 to 4294967295`)
    tokens[index] = token
  }
  return tokens
}
