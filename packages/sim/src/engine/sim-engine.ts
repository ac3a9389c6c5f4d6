import { randomUUID } from 'node:crypto'
import {
  type Clock,
  type KvEventSource,
  type LoadReport,
  type Logger,
  silentLogger,
  systemClock,
  type WorkerRequestHandler,
} from '@infera/fleet'
import type { PromptModel } from '@infera/router/prompt'
import { OpenAiFace } from '../openai/openai-face.js'
import { type ResolvedSimEngineOptions, resolveEngineOptions, type SimEngineOptions } from '../options.js'
import { EngineCore } from './engine-core.js'

export interface SimEnginePorts {
  /** Tokenizer and chat template of the simulated model; see `loadPromptModel` and `simModelFolder`. */
  readonly prompt: PromptModel
  /** Default: the process's own. */
  readonly clock?: Clock
  /** Unix time in ms, for `created` and for event timestamps. Default: `Date.now`. */
  readonly wallClock?: () => number
  readonly logger?: Logger
}

/**
 * A simulated LLM engine: paged KV blocks with prefix caching, continuous batching with chunked prefill in modelled time,
 * and answers that are a function of seed and input. It has an OpenAI face, and publishes vLLM's KV events and metrics.
 * Who constructs it closes it.
 */
export class SimEngine {
  readonly instanceId: string
  readonly prompt: PromptModel
  readonly options: ResolvedSimEngineOptions
  /** The OpenAI face as a worker's request handler; may be called on its own. */
  readonly handler: WorkerRequestHandler
  readonly #core: EngineCore
  readonly #face: OpenAiFace

  /**
   * @throws InvalidSimOptionsError naming the option and what it must be
   * @throws UnusableModelError when the tokenizer has too few common words as single tokens
   */
  constructor(options: SimEngineOptions & SimEnginePorts) {
    const { prompt, clock = systemClock, wallClock = Date.now, logger = silentLogger, ...own } = options
    this.options = resolveEngineOptions(own)
    this.prompt = prompt
    this.instanceId = this.options.instanceId ?? randomUUID()
    this.#core = new EngineCore(this.options, { prompt, clock, wallClock, logger }, this.instanceId)
    this.#face = new OpenAiFace({
      core: this.#core,
      prompt,
      options: this.options,
      instanceId: this.instanceId,
      wallClock,
    })
    this.handler = (request, handling) => this.#face.handle(request, handling)
  }

  /** Stores and evictions of the prefix cache, as vLLM publishes them; one rank, 0. */
  get kvEvents(): KvEventSource {
    return this.#core.events
  }

  get state(): 'open' | 'draining' | 'closed' {
    return this.#core.state
  }

  /** What `/metrics` answers. */
  metricsText(): string {
    return this.#face.metricsText()
  }

  /** KV blocks in the prefix cache, those in use included. */
  get cachedBlocks(): number {
    return this.#core.pool.cachedBlocks
  }

  /** Tokens of every chain in the prefix cache that no other one goes on from, each from its head. For tests of views. */
  cachedChains(): Uint32Array[] {
    return this.#core.pool.cachedChains()
  }

  /** What the engine's books say against themselves, a line each; empty when they agree. For tests. */
  bookFaults(): string[] {
    return this.#core.pool.bookFaults()
  }

  load(): LoadReport {
    const { scheduler, pool } = this.#core
    return {
      runningRequests: scheduler.running.length,
      waitingRequests: scheduler.waiting.length,
      kvUsageRatio: pool.usedBlocks / pool.capacityBlocks,
    }
  }

  /** Takes no new requests (503) and resolves when those inside have ended. Idempotent. */
  close(): Promise<void> {
    return this.#core.close()
  }

  /** Ends every request with `error` now. Idempotent. */
  destroy(error?: Error): void {
    this.#core.destroy(error)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}
