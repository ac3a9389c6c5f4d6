import type { Clock, Logger } from '@infera/fleet'
import type { PromptModel } from '@infera/router/prompt'
import { BlockPool } from '../cache/block-pool.js'
import { EngineHash } from '../cache/engine-hash.js'
import { digestToken } from '../content/kv-content.js'
import { LanguageModel } from '../content/language-model.js'
import { OutputVocabulary } from '../content/output-vocabulary.js'
import { EngineClosedError, RequestRefusedError } from '../errors.js'
import { KvEventLog } from '../events/kv-event-log.js'
import type { ResolvedSimEngineOptions } from '../options.js'
import { Scheduler } from '../scheduling/scheduler.js'
import { Sequence } from '../scheduling/sequence.js'
import { stepDurationMs } from '../scheduling/step-rules.js'
import { EngineLoop } from './engine-loop.js'
import { EngineMetrics } from './engine-metrics.js'
import { Generation } from './generation.js'

export interface EngineCorePorts {
  readonly prompt: PromptModel
  readonly clock: Clock
  readonly wallClock: () => number
  readonly logger: Logger
}

/** A request for the engine itself: tokens in, text out. */
export interface GenerateRequest {
  /** At least one token, fewer than the model's length. */
  readonly promptTokens: Uint32Array
  /** Most tokens to generate; undefined: as many as the model's length leaves. */
  readonly answerTokensMax?: number | undefined
  /** Goes on until the limit, whatever the answer. */
  readonly ignoresEnd?: boolean
  readonly stopStrings?: readonly string[]
  readonly requestSeed?: number
  readonly signal?: AbortSignal
}

export interface RunningRequest {
  readonly generation: Generation
  /** Prompt tokens found in the cache; known once the first piece is there. */
  readonly cachedTokens: () => number
  /** Tokens generated so far. */
  readonly generatedTokens: () => number
}

/** The engine without its OpenAI face: cache, scheduler, simulated weights, and the loop that drives them. */
export class EngineCore {
  readonly pool: BlockPool
  readonly events: KvEventLog
  readonly metrics: EngineMetrics
  readonly scheduler: Scheduler
  readonly #options: ResolvedSimEngineOptions
  readonly #ports: EngineCorePorts
  readonly #model: LanguageModel
  readonly #loop: EngineLoop
  #state: 'open' | 'draining' | 'closed' = 'open'
  #closed: Promise<void> | undefined
  #onEmpty: (() => void) | undefined

  constructor(options: ResolvedSimEngineOptions, ports: EngineCorePorts, instanceId: string) {
    this.#options = options
    this.#ports = ports
    const { blocks, blockSizeTokens, snapshotPayloadBytesMax, timeScale } = options
    const vocabulary = OutputVocabulary.of(ports.prompt)
    this.#model = new LanguageModel(vocabulary, options.seed)
    this.metrics = new EngineMetrics(
      () => ports.clock.now(),
      () => this.#noticeEmpty(),
    )
    this.events = new KvEventLog({ blockSizeTokens, snapshotPayloadBytesMax, wallClock: ports.wallClock })
    this.pool = new BlockPool({ blocks, blockSizeTokens }, this.events)
    this.events.attach(this.pool)
    this.scheduler = new Scheduler(
      {
        pool: this.pool,
        engineHash: new EngineHash(blockSizeTokens, instanceId),
        model: this.#model,
        vocabulary,
        listener: this.metrics,
      },
      options,
    )
    this.#loop = new EngineLoop({
      scheduler: this.scheduler,
      clock: ports.clock,
      timeScale,
      stepDurationMs: (plan) => stepDurationMs(plan, options),
      onChanged: () => this.events.publish(),
      onFailed: (error) => this.#fail(error),
    })
  }

  get state(): 'open' | 'draining' | 'closed' {
    return this.#state
  }

  /** Requests inside the engine, running or waiting. */
  get requests(): number {
    return this.scheduler.running.length + this.scheduler.waiting.length
  }

  /**
   * Takes a request in.
   * @throws RequestRefusedError when the engine is closing or full; the signal's reason when it is aborted
   */
  submit(request: GenerateRequest): RunningRequest {
    request.signal?.throwIfAborted()
    if (this.#state !== 'open') {
      throw new RequestRefusedError(
        'INFERA_SIM_CLOSED',
        'the engine is shutting down and takes no new requests',
      )
    }
    const { sequencesMax, waitingMax, modelTokensMax } = this.#options
    if (this.requests >= sequencesMax + waitingMax) {
      throw new RequestRefusedError(
        'INFERA_SIM_QUEUE_FULL',
        `the engine holds ${this.requests} requests, which is all it takes; try again later`,
      )
    }
    const abort = () => {
      sequence.isAborted = true
      sequence.request.generation.fail(request.signal?.reason)
    }
    const generation = new Generation(request.stopStrings ?? [], {
      settled: () => request.signal?.removeEventListener('abort', abort),
      abandoned: () => {
        sequence.isAborted = true
      },
    })
    const room = modelTokensMax - request.promptTokens.length
    const sequence = new Sequence({
      promptTokens: request.promptTokens,
      answerTokensMax: Math.min(request.answerTokensMax ?? room, room),
      answerTokens: request.ignoresEnd ? undefined : this.#answerTokens(request),
      requestSeed: request.requestSeed ?? 0,
      generation,
      arrivedAtMs: this.#ports.clock.now(),
    })
    request.signal?.addEventListener('abort', abort, { once: true })
    this.scheduler.add(sequence)
    this.#loop.wake()
    return {
      generation,
      cachedTokens: () => sequence.cachedTokens ?? 0,
      generatedTokens: () => sequence.generated,
    }
  }

  /** Takes no new requests and resolves when those inside have ended. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= this.#drain()
    return this.#closed
  }

  /** Ends every request with `error` now. Idempotent. */
  destroy(error: unknown = new EngineClosedError('the engine was shut down')): void {
    if (this.#state === 'closed') return
    this.#stop(error)
    this.scheduler.dropAborted()
  }

  async #drain(): Promise<void> {
    if (this.#state === 'closed') return
    this.#state = 'draining'
    if (this.requests > 0) {
      await new Promise<void>((resolve) => {
        this.#onEmpty = resolve
      })
    }
    this.#state = 'closed'
    this.#loop.stop()
  }

  #stop(error: unknown): void {
    this.#state = 'closed'
    this.#loop.stop()
    this.scheduler.failAll(error)
    this.#onEmpty?.()
  }

  #noticeEmpty(): void {
    if (this.requests === 0) this.#onEmpty?.()
  }

  #fail(error: unknown): void {
    this.#ports.logger.error(
      { error: error instanceof Error ? error.message : String(error) },
      'simulated engine failed',
    )
    // The books may be wrong now, so blocks are not given back one by one.
    this.#stop(error)
  }

  #answerTokens(request: GenerateRequest): number {
    const digest = { low: 0, high: 0 }
    for (const token of request.promptTokens) digestToken(digest, token)
    return this.#model.answerTokens(digest, request.requestSeed ?? 0, {
      min: this.#options.answerTokensMin,
      max: this.#options.answerTokensMax,
    })
  }
}
