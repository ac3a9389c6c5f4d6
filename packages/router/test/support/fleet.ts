import {
  EmbeddedDiscovery,
  type EmbeddedRegistration,
  parseWorkerRecord,
  type WorkerRecord,
} from '@infera/fleet'
import { expect } from 'vitest'
import { type DispatchRequest, Router, type RouterOptions } from '../../src/index.js'
import type { PromptModel } from '../../src/prompt.js'
import { ScriptedTransport } from './scripted-transport.js'

export const modelName = 'tiny'

/** A model whose prompt is all text of the request, one token for each UTF-8 byte. */
export const bytePrompt: PromptModel = {
  folder: 'nowhere',
  tokenizerDigest: '0000000000000000',
  tokenizerCanary: [],
  renderChat: (body) => (body.messages as { content: string }[]).map(({ content }) => content).join('\n'),
  encode: (text) => Uint32Array.from(new TextEncoder().encode(text)),
  decode: (ids) => new TextDecoder().decode(Uint8Array.from(ids)),
  tokenize(path, body) {
    return this.encode(path === '/v1/chat/completions' ? this.renderChat(body) : String(body.prompt))
  },
  tokenizePrompts(path, body) {
    return [this.tokenize(path, body)]
  },
}

export function workerRecord(workerId: string, more: Record<string, unknown> = {}): WorkerRecord {
  return parseWorkerRecord({
    worker_id: workerId,
    url: `link://${workerId}`,
    model_name: modelName,
    request_transport: 'link',
    kv_block_size: 4,
    ...more,
  })
}

export interface TestFleet extends AsyncDisposable {
  readonly router: Router
  readonly discovery: EmbeddedDiscovery
  readonly transport: ScriptedTransport
  readonly registrations: ReadonlyMap<string, EmbeddedRegistration>
}

/**
 * A started router over scripted workers, `a`, `b` and `c` unless told; a first request goes to `a` and is retried in that
 * order. Disposing it cancels what still runs.
 */
export async function startFleet(
  options: Partial<RouterOptions> = {},
  records: readonly WorkerRecord[] = ['a', 'b', 'c'].map((id) => workerRecord(id)),
): Promise<TestFleet> {
  const discovery = new EmbeddedDiscovery()
  const registrations = new Map<string, EmbeddedRegistration>()
  for (const record of records)
    registrations.set(record.worker_id, discovery.registerNow({ kind: 'worker', record }))
  const transport = new ScriptedTransport()
  const router = new Router({
    discovery,
    transports: [transport],
    models: [{ name: modelName, prompt: bytePrompt }],
    ...options,
  })
  await router.start()
  const dispose = async () => {
    await router.destroy()
    await discovery.close()
  }
  return { router, discovery, transport, registrations, [Symbol.asyncDispose]: dispose }
}

export function chatBody(more: Record<string, unknown> = {}): Record<string, unknown> {
  return { model: modelName, messages: [{ role: 'user', content: 'how far is it to the sea?' }], ...more }
}

export function chat(more: Record<string, unknown> = {}): DispatchRequest {
  return { path: '/v1/chat/completions', body: chatBody(more) }
}

export async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = []
  for await (const part of body) parts.push(part)
  return Buffer.concat(parts).toString('utf8')
}

/** Nothing runs and nothing is booked. */
export function expectIdle(router: Router): void {
  const { requestsInFlight, targets } = router.stats()
  expect(requestsInFlight).toBe(0)
  expect(targets.filter((target) => target.requestsInFlight !== 0 || target.activeBlocks !== 0)).toEqual([])
}

/** How many blocks and requests are booked, over all targets. */
export function booked(router: Router): { requests: number; blocks: number } {
  const { targets } = router.stats()
  return {
    requests: targets.reduce((sum, target) => sum + target.requestsInFlight, 0),
    blocks: targets.reduce((sum, target) => sum + target.activeBlocks, 0),
  }
}

/** Resolves when everything that was ready to run has run, timers aside. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
}
