import type { InferenceBody, InferencePath, PromptModel } from '@infera/router/prompt'

/** Prompts that are remembered; the oldest is forgotten first. */
const promptsMax = 8192

/**
 * The same prompt model, with a memory: of one prompt the router, the engines and whoever checks them ask for the tokens again and
 * again, and tokenizing is most of what a run in virtual time costs. Token arrays are shared, so nobody may write into them.
 */
export function sharedPrompt(inner: PromptModel): PromptModel {
  const known = new Map<string, Uint32Array>()
  const tokenize = (path: InferencePath, body: InferenceBody): Uint32Array => {
    if (path === '/v1/completions' && Array.isArray(body.prompt)) return inner.tokenize(path, body)
    const key = `${path} ${JSON.stringify([body.messages, body.prompt, body.tools])}`
    let tokens = known.get(key)
    if (!tokens) {
      tokens = inner.tokenize(path, body)
      if (known.size >= promptsMax) known.delete(known.keys().next().value as string)
      known.set(key, tokens)
    }
    return tokens
  }
  return {
    folder: inner.folder,
    tokenizerDigest: inner.tokenizerDigest,
    tokenizerCanary: inner.tokenizerCanary,
    renderChat: (body) => inner.renderChat(body),
    encode: (text) => inner.encode(text),
    decode: (ids) => inner.decode(ids),
    tokenize,
    tokenizePrompts: (path, body) =>
      path === '/v1/completions' && Array.isArray(body.prompt)
        ? inner.tokenizePrompts(path, body)
        : [tokenize(path, body)],
  }
}
