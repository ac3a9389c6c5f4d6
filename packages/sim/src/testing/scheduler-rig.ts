import { BlockPool } from '../cache/block-pool.js'
import { EngineHash } from '../cache/engine-hash.js'
import { LanguageModel } from '../content/language-model.js'
import { OutputVocabulary } from '../content/output-vocabulary.js'
import { EngineMetrics } from '../engine/engine-metrics.js'
import { Generation } from '../engine/generation.js'
import { KvEventLog } from '../events/kv-event-log.js'
import { Scheduler, type SchedulerLimits } from '../scheduling/scheduler.js'
import { Sequence } from '../scheduling/sequence.js'
import type { StepPlan } from '../scheduling/step-rules.js'
import { wordPrompt } from './word-prompt.js'

const vocabulary = OutputVocabulary.of(wordPrompt())

/** A scheduler with all that it needs and no clock: tests make its steps. */
export class SchedulerRig {
  readonly pool: BlockPool
  readonly events: KvEventLog
  readonly scheduler: Scheduler
  readonly model: LanguageModel
  readonly metrics = new EngineMetrics(
    () => 0,
    () => {},
  )

  constructor(
    options: {
      blocks: number
      blockSizeTokens: number
      seed?: number
      instanceId?: string
    } & SchedulerLimits,
  ) {
    this.events = new KvEventLog({
      blockSizeTokens: options.blockSizeTokens,
      snapshotPayloadBytesMax: 4096,
      wallClock: () => 1500,
    })
    this.pool = new BlockPool(options, this.events)
    this.events.attach(this.pool)
    this.model = new LanguageModel(vocabulary, options.seed ?? 0)
    const engineHash = new EngineHash(options.blockSizeTokens, options.instanceId ?? 'test')
    this.scheduler = new Scheduler(
      { pool: this.pool, engineHash, model: this.model, vocabulary, listener: this.metrics },
      options,
    )
  }

  add(promptTokens: ArrayLike<number>, answerTokensMax: number, requestSeed = 0): Sequence {
    const generation = new Generation([], { settled() {}, abandoned() {} })
    const sequence = new Sequence({
      promptTokens: Uint32Array.from(promptTokens),
      answerTokensMax,
      answerTokens: undefined,
      requestSeed,
      generation,
      arrivedAtMs: 0,
    })
    this.scheduler.add(sequence)
    return sequence
  }

  /** Makes one step; undefined when there was nothing to do. */
  step(): StepPlan | undefined {
    const plan = this.scheduler.planStep()
    if (plan) this.scheduler.completeStep(plan)
    this.events.publish()
    return plan
  }

  runToEnd(): StepPlan[] {
    const plans: StepPlan[] = []
    for (let plan = this.step(); plan; plan = this.step()) plans.push(plan)
    return plans
  }
}

/** What a sequence has generated so far. */
export function answerOf(sequence: Sequence): number[] {
  return Array.from(sequence.tokens.subarray(sequence.promptLength, sequence.length))
}
