import {
  EmbeddedDiscovery,
  type EmbeddedRegistration,
  parseWorkerRecord,
  seededRandom,
  VirtualClock,
} from '@infera/fleet'
import type { RouterOptions } from '../options.js'
import { Router } from '../router.js'
import { BytePromptModel } from './byte-prompt-model.js'
import { InstantTransport } from './instant-transport.js'
import { ScriptedKvEvents } from './scripted-kv-events.js'

export interface RigOptions {
  /** Ids of workers that are registered before the router starts; default `a` and `b`. */
  readonly workers?: readonly string[]
  readonly router?: Partial<RouterOptions>
}

/** A started router on a registry, a transport and KV events in memory, under a clock that stands still. For tests only. */
export class RouterRig {
  readonly discovery = new EmbeddedDiscovery()
  readonly transport = new InstantTransport()
  readonly kvEvents = new ScriptedKvEvents()
  readonly clock = new VirtualClock()
  readonly prompt = new BytePromptModel()
  readonly logs: { level: string; message: string; fields: Readonly<Record<string, unknown>> }[] = []
  readonly router: Router

  private constructor(options: Partial<RouterOptions>) {
    const log = (level: string) => (fields: Readonly<Record<string, unknown>>, message: string) => {
      this.logs.push({ level, message, fields })
    }
    this.router = new Router({
      discovery: this.discovery,
      transports: [this.transport],
      kvEvents: [this.kvEvents],
      models: [{ name: 'm', prompt: this.prompt }],
      clock: this.clock,
      random: seededRandom(1),
      logger: { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') },
      ...options,
    })
  }

  static async start({ workers = ['a', 'b'], router = {} }: RigOptions = {}): Promise<RouterRig> {
    const rig = new RouterRig(router)
    for (const workerId of workers) await rig.register(workerId)
    await rig.router.start()
    return rig
  }

  /** @param more fields of the record, beside those of a mixed worker of model `m` with blocks of 4 tokens */
  register(workerId: string, more: Record<string, unknown> = {}): Promise<EmbeddedRegistration> {
    const record = parseWorkerRecord({
      worker_id: workerId,
      url: `link://${workerId}`,
      model_name: 'm',
      engine: 'vllm',
      kv_block_size: 4,
      request_transport: 'link',
      ...more,
    })
    return this.discovery.register({ kind: 'worker', record })
  }

  /** Sends a chat with one user turn and reads the answer to its end. @returns the worker that answered */
  async serve(content: string, more: Record<string, unknown> = {}): Promise<string> {
    const { workerId, body } = await this.router.dispatch(chat(content, more))
    await textOf(body)
    return workerId
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.router.destroy()
    await this.discovery.close()
  }
}

/** Lets promises and immediates settle until a condition holds; the test's own time limit is the bound. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve))
}

/** Collects a body to its end. */
export async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = []
  for await (const chunk of body) chunks.push(chunk)
  return Buffer.concat(chunks).toString('utf8')
}

/** A request for a chat with one user turn. */
export function chat(content: string, more: Record<string, unknown> = {}) {
  return {
    path: '/v1/chat/completions' as const,
    body: { model: 'm', messages: [{ role: 'user', content }], ...more },
  }
}
