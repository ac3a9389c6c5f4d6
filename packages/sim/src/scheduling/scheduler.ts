import type { BlockPool } from '../cache/block-pool.js'
import type { EngineHash } from '../cache/engine-hash.js'
import type { LanguageModel } from '../content/language-model.js'
import type { OutputVocabulary } from '../content/output-vocabulary.js'
import type { FinishReason } from '../engine/generation.js'
import { invariant } from '../errors.js'
import type { Sequence } from './sequence.js'
import { fits, type PromptChunk, type StepPlan } from './step-rules.js'

export interface SchedulerLimits {
  readonly sequencesMax: number
  readonly stepTokensMax: number
}

/** Learns of what the metrics count. */
export interface SchedulerListener {
  firstAdmitted(sequence: Sequence): void
  tokenGenerated(sequence: Sequence): void
  requestEnded(sequence: Sequence, how: FinishReason | 'abort'): void
  preempted(sequence: Sequence): void
}

export interface SchedulerParts {
  readonly pool: BlockPool
  readonly engineHash: EngineHash
  readonly model: LanguageModel
  readonly vocabulary: OutputVocabulary
  readonly listener: SchedulerListener
}

/**
 * Continuous batching with chunked prefill, without any clock: `planStep` decides what the next step does and takes the
 * blocks for it, `completeStep` does it. What happens is a function of the requests and of the steps at which they came.
 * Invariant: the chain of a running sequence covers what is computed and, while it is prefilling, all that will be.
 */
export class Scheduler {
  readonly #parts: SchedulerParts
  readonly #limits: SchedulerLimits
  readonly #running: Sequence[] = []
  #waiting: Sequence[] = []

  constructor(parts: SchedulerParts, limits: SchedulerLimits) {
    this.#parts = parts
    this.#limits = limits
  }

  /** In order of admission. */
  get running(): readonly Sequence[] {
    return this.#running
  }

  /** In order of arrival. */
  get waiting(): readonly Sequence[] {
    return this.#waiting
  }

  add(sequence: Sequence): void {
    this.#waiting.push(sequence)
  }

  /** What the next step does; undefined when there is nothing to do. Aborted requests leave here. */
  planStep(): StepPlan | undefined {
    this.dropAborted()
    const decoding = this.#growDecoding()
    let budget = this.#limits.stepTokensMax - decoding.sequences.length
    const chunks: PromptChunk[] = []
    for (const sequence of this.#running) {
      if (budget <= 0) break
      if (!sequence.isPrefilling) continue
      budget -= addChunk(chunks, sequence, budget)
    }
    // What was preempted would be admitted right back into the blocks that it had to give.
    while (!decoding.hasPreempted && budget > 0) {
      const sequence = this.#admitNext()
      if (!sequence) break
      budget -= addChunk(chunks, sequence, budget)
    }
    if (decoding.sequences.length === 0 && chunks.length === 0) {
      invariant(this.#running.length + this.#waiting.length === 0, 'a step with requests does something')
      return undefined
    }
    return { decoding: decoding.sequences, chunks }
  }

  /** Computes a planned step: KV into the blocks, complete blocks into the cache, and the next tokens. */
  completeStep(plan: StepPlan): void {
    for (const sequence of plan.decoding) this.#advance(sequence, 1)
    for (const { sequence, tokens } of plan.chunks) this.#advance(sequence, tokens)
  }

  /** Ends every request with that error; they leave, with their blocks, when the aborted ones are dropped. */
  failAll(error: unknown): void {
    for (const sequence of [...this.#running, ...this.#waiting]) {
      sequence.isAborted = true
      sequence.request.generation.fail(error)
    }
  }

  /** Lets aborted requests leave. */
  dropAborted(): void {
    for (let index = this.#running.length - 1; index >= 0; index--) {
      const sequence = this.#running[index]!
      if (sequence.isAborted) this.#end(sequence, 'abort')
    }
    if (!this.#waiting.some((sequence) => sequence.isAborted)) return
    const dropped = this.#waiting.filter((sequence) => sequence.isAborted)
    this.#waiting = this.#waiting.filter((sequence) => !sequence.isAborted)
    for (const sequence of dropped) this.#parts.listener.requestEnded(sequence, 'abort')
  }

  /** A block for each decoding request whose last one is full; the last admitted request gives way when there is none. */
  #growDecoding(): { sequences: Sequence[]; hasPreempted: boolean } {
    const { pool } = this.#parts
    const sequences: Sequence[] = []
    let hasPreempted = false
    for (let index = 0; index < this.#running.length; index++) {
      const sequence = this.#running[index]!
      if (sequence.isPrefilling) continue
      if (sequence.computed % pool.blockSizeTokens === 0) {
        while (pool.availableBlocks === 0 && index < this.#running.length) {
          this.#preemptLast()
          hasPreempted = true
        }
        if (index >= this.#running.length) break // It was the last admitted itself.
        sequence.chain.push(pool.take())
      }
      sequences.push(sequence)
    }
    return { sequences, hasPreempted }
  }

  #preemptLast(): void {
    const sequence = this.#running.pop()
    invariant(sequence !== undefined, 'blocks are short only while something runs')
    this.#parts.pool.release(sequence.chain)
    sequence.chain = []
    sequence.computed = 0
    sequence.prefillUntil = 0
    // It was admitted before everything that waits now.
    this.#waiting.unshift(sequence)
    this.#parts.listener.preempted(sequence)
  }

  #admitNext(): Sequence | undefined {
    const { pool, engineHash } = this.#parts
    const sequence = this.#waiting[0]
    if (!sequence || this.#running.length >= this.#limits.sequencesMax) return undefined
    // The last token has to be computed in any case: the next one is generated from it.
    const hitsMax = Math.floor((sequence.length - 1) / pool.blockSizeTokens)
    const hits = pool.findChain(sequence.hashes(engineHash, pool.blockSizeTokens, hitsMax), hitsMax)
    const idleHits = hits.filter((block) => pool.isIdle(block)).length
    const blocksNeeded = Math.ceil(sequence.length / pool.blockSizeTokens) - hits.length
    const isRoom = fits({
      blocksNeeded,
      available: pool.availableBlocks - idleHits,
      running: this.#running.length,
      capacityBlocks: pool.capacityBlocks,
    })
    if (!isRoom) return undefined
    this.#waiting.shift()
    this.#running.push(sequence)
    for (const block of hits) pool.hold(block)
    sequence.computed = hits.length * pool.blockSizeTokens
    sequence.chain = [...hits, ...Array.from({ length: blocksNeeded }, () => pool.take())]
    sequence.prefillUntil = sequence.length
    if (sequence.cachedTokens === undefined) {
      sequence.cachedTokens = sequence.computed
      this.#parts.listener.firstAdmitted(sequence)
    }
    return sequence
  }

  #advance(sequence: Sequence, tokens: number): void {
    if (sequence.isAborted) return // It leaves, with its blocks, before the next step.
    const { pool, model } = this.#parts
    const from = sequence.computed
    const to = from + tokens
    model.computeKv(pool, sequence.chain, sequence.tokens, from, to)
    sequence.computed = to
    this.#cacheFullBlocks(sequence, from, to)
    if (!sequence.isPrefilling) this.#generate(sequence)
  }

  #cacheFullBlocks(sequence: Sequence, from: number, to: number): void {
    const { pool, engineHash } = this.#parts
    const size = pool.blockSizeTokens
    const full = Math.floor(to / size)
    const hashes = sequence.hashes(engineHash, size, full)
    for (let index = Math.floor(from / size); index < full; index++) {
      const tokens = sequence.tokens.subarray(index * size, (index + 1) * size)
      const parent = index === 0 ? undefined : hashes[index - 1]
      sequence.chain[index] = pool.cache(sequence.chain[index]!, hashes[index]!, parent, tokens)
    }
  }

  #generate(sequence: Sequence): void {
    const { pool, model, vocabulary, listener } = this.#parts
    const { request, generated } = sequence
    const token = model.nextToken(pool, {
      tokenDigest: sequence.tokenDigest,
      length: sequence.length,
      lastToken: sequence.lastToken,
      requestSeed: request.requestSeed,
      chain: sequence.chain,
      isFirst: generated === 0,
      tokensLeft: request.answerTokens === undefined ? undefined : request.answerTokens - generated - 1,
    })
    sequence.append(token)
    listener.tokenGenerated(sequence)
    const reason = endingReason(sequence)
    const hasEnded = request.generation.accept(vocabulary.textOf(token), reason)
    if (hasEnded) this.#end(sequence, reason ?? 'stop')
  }

  #end(sequence: Sequence, how: FinishReason | 'abort'): void {
    const index = this.#running.indexOf(sequence)
    invariant(index >= 0, 'only running requests end in a step')
    this.#running.splice(index, 1)
    this.#parts.pool.release(sequence.chain)
    sequence.chain = []
    this.#parts.listener.requestEnded(sequence, how)
  }
}

function addChunk(chunks: PromptChunk[], sequence: Sequence, budget: number): number {
  const tokens = Math.min(sequence.prefillUntil - sequence.computed, budget)
  chunks.push({ sequence, context: sequence.computed, tokens })
  return tokens
}

/** A limit counts as the reason even when the answer would have ended by itself with that token: its end was not seen. */
function endingReason({ request, generated }: Sequence): FinishReason | null {
  if (generated >= request.answerTokensMax) return 'length'
  return generated === request.answerTokens ? 'stop' : null
}
