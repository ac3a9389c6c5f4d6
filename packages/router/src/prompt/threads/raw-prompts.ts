import { parsePromptBody } from '../json/prompt-body.js'
import type { InferencePath, PromptModel } from '../prompt-model.js'

/**
 * Token ids of each prompt of a request, from the exact bytes of its body.
 * @throws PromptError as `PromptModel.tokenizePrompts`, and for bytes that are no JSON object
 */
export function tokenizeRawBody(
  model: PromptModel,
  path: InferencePath,
  rawBody: Uint8Array,
): readonly Uint32Array[] {
  const text = Buffer.from(rawBody.buffer, rawBody.byteOffset, rawBody.length).toString('utf8')
  return model.tokenizePrompts(path, parsePromptBody(text))
}
