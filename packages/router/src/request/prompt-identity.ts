import { chainParent } from '@infera/native'
import type { InferenceBody } from '../prompt/prompt-model.js'

/**
 * The parent that the blocks of a request's prompt start from: those of another adapter or another salt hold other keys and values
 * for the same tokens, and share nothing with them. Views start the chains of engines' events alike.
 * @param adapter the LoRA adapter that the requested name stands for, if it is one
 * @returns 0n for a plain prompt
 */
export function promptParent(body: InferenceBody, adapter: string | undefined): bigint {
  // vLLM takes the adapter's name as the model; SGLang knows `lora_path`.
  const lora = adapter ?? textOf(body.lora_path) + textOf(body.lora_name)
  // SGLang joins the two; vLLM knows the first alone.
  return chainParent({ lora, salt: textOf(body.cache_salt) + textOf(body.extra_key) })
}

/** What is no string (a list for each prompt of a batch, say) is the engine's own matter: such prompts must hit nothing. */
function textOf(value: unknown): string {
  if (value === undefined || value === null) return ''
  return typeof value === 'string' ? value : `\0${JSON.stringify(value)}`
}
