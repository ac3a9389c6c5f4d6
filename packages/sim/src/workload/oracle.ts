import type { InferenceBody, InferencePath, PromptModel } from '@infera/router/prompt'
import { SimEngine } from '../engine/sim-engine.js'
import type { SimEngineOptions } from '../options.js'
import { readWhole } from './sse-reader.js'

const encoder = new TextEncoder()

/** What a request must get: the answer of an engine that nothing happens to, and that nobody else asks. */
export class Oracle {
  readonly #engine: SimEngine

  /** @param options those of the fleet's engines */
  constructor(options: SimEngineOptions & { readonly prompt: PromptModel }) {
    this.#engine = new SimEngine({ ...options, instanceId: 'oracle', timeScale: 0 })
  }

  async answer(path: InferencePath, body: InferenceBody): Promise<string> {
    const whole = { ...body, stream: false }
    const request = {
      method: 'POST',
      path,
      headers: {},
      body: encoder.encode(JSON.stringify(whole)),
    } as const
    const response = await this.#engine.handler(request, { signal: new AbortController().signal })
    const chunks: Uint8Array[] = []
    for await (const chunk of response.body) chunks.push(chunk)
    return readWhole(Buffer.concat(chunks), path === '/v1/chat/completions')
  }

  close(): void {
    this.#engine.destroy()
  }
}
