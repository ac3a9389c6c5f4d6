import { InvalidRequestError } from '../errors.js'
import type { InferenceBody } from '../prompt/prompt-model.js'

/**
 * Reads a body as JSON. What it must hold is checked by whoever places it.
 * @throws InvalidRequestError that says what to send
 */
export function parseBody(bytes: Uint8Array): InferenceBody {
  const text = decodeUtf8(bytes)
  try {
    return JSON.parse(text) as InferenceBody
  } catch (cause) {
    const what = text.trim() === '' ? 'the request body is empty' : 'the request body is not valid JSON'
    throw new InvalidRequestError(null, `${what}; send a JSON object`, { cause })
  }
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (cause) {
    throw new InvalidRequestError(null, 'the request body is not valid UTF-8; send JSON encoded as UTF-8', {
      cause,
    })
  }
}
