import type { SchedulerListener } from '../scheduling/scheduler.js'
import type { Sequence } from '../scheduling/sequence.js'
import type { FinishReason } from './generation.js'

/** Upper bounds of the histogram of times to first token, seconds; those of vLLM. */
export const firstTokenBuckets = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
] as const

/** What an engine counts over its life. */
export class EngineMetrics implements SchedulerListener {
  promptTokens = 0
  generationTokens = 0
  /** Prompt tokens looked up in the prefix cache, and those found there. */
  prefixQueries = 0
  prefixHits = 0
  preemptions = 0
  readonly ended: Record<FinishReason | 'abort', number> = { stop: 0, length: 0, abort: 0 }
  /** Times to first token at most as long as each bucket's bound; not cumulative. */
  readonly firstTokenCounts = new Array<number>(firstTokenBuckets.length + 1).fill(0)
  firstTokenSumSeconds = 0
  readonly #now: () => number
  readonly #onEnded: () => void

  /** @param now the engine's clock, ms; @param onEnded called after each request's end */
  constructor(now: () => number, onEnded: () => void) {
    this.#now = now
    this.#onEnded = onEnded
  }

  firstAdmitted(sequence: Sequence): void {
    this.promptTokens += sequence.promptLength
    this.prefixQueries += sequence.promptLength
    this.prefixHits += sequence.cachedTokens ?? 0
  }

  tokenGenerated(sequence: Sequence): void {
    this.generationTokens++
    if (sequence.generated !== 1) return
    const seconds = (this.#now() - sequence.request.arrivedAtMs) / 1000
    const bucket = firstTokenBuckets.findIndex((bound) => seconds <= bound)
    this.firstTokenCounts[bucket === -1 ? firstTokenBuckets.length : bucket]!++
    this.firstTokenSumSeconds += seconds
  }

  preempted(): void {
    this.preemptions++
  }

  requestEnded(_sequence: Sequence, how: FinishReason | 'abort'): void {
    this.ended[how]++
    this.#onEnded()
  }
}
