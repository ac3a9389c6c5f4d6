import type { Clock, Logger } from '@infera/fleet'
import type { SettingsSource } from '../live-options.js'
import type { ReportedUsage } from './reported-usage.js'
import {
  compareWithReport,
  type DoubtCause,
  type ParityResult,
  type Prediction,
  trustWeights,
  ViewTrust,
  type ViewTrustStatus,
} from './view-trust.js'

/** Answers by what their engines said of the prompt, since the start. */
export interface ParityCounts {
  /** Token counts agree, and so does what was reused, within two blocks or a tenth of the prompt. */
  agrees: number
  'over-claims': number
  'under-claims': number
  'prompt-differs': number
  /** Neither side knew of a reusable block: nothing to compare. */
  nothing: number
  /** The engine did not say what it reused. */
  unreported: number
  /** Sums over answers that could be compared. */
  predictedTokens: number
  reportedTokens: number
}

export interface ParityWatchOptions {
  readonly clock: Clock
  readonly live: SettingsSource<'parityWindow' | 'parityPersistsMs'>
  readonly logger: Logger
  /** A view disagrees with its engine: what it is made of should be asked for anew. */
  readonly onDoubt: (routeKey: string) => void
  /** How far a view is believed is another thing now. */
  readonly onChange: (routeKey: string, now: ViewTrustStatus, previous: ViewTrustStatus) => void
}

export interface ParityObservation {
  readonly routeKey: string
  readonly model: string
  readonly predicted: Prediction
  /** Undefined when the answer said nothing. */
  readonly reported: ReportedUsage | undefined
}

const trusted: ViewTrustStatus = { state: 'trusted', cause: null }

const advice: Readonly<Record<DoubtCause, string>> = {
  'bos-differs':
    'engine and router differ by one special token in each prompt: give the router the folder that the engine serves, with its tokenizer_config.json',
  'prompt-differs':
    'the engine makes other tokens of its prompts than the router: give the router the folder of the same model, chat template included',
  'view-stale':
    'the engine reuses less than it told: its events may get lost on the way, or its cache is cleared without an event',
  'view-incomplete':
    'the engine reuses more than it told: events may get lost on the way, or it holds blocks in tiers that it does not report',
}

/** What was predicted of caches against what engines report, and how far each view is believed for it. */
export class ParityWatch {
  readonly #options: ParityWatchOptions
  readonly #byTarget = new Map<string, ViewTrust>()
  readonly counts: ParityCounts = {
    agrees: 0,
    'over-claims': 0,
    'under-claims': 0,
    'prompt-differs': 0,
    nothing: 0,
    unreported: 0,
    predictedTokens: 0,
    reportedTokens: 0,
  }

  constructor(options: ParityWatchOptions) {
    this.#options = options
  }

  statusOf(routeKey: string): ViewTrustStatus {
    const trust = this.#byTarget.get(routeKey)
    return trust ? { state: trust.state, cause: trust.cause } : trusted
  }

  /** What a block that a view claims counts for, 0 to 1. */
  weightOf(routeKey: string): number {
    const trust = this.#byTarget.get(routeKey)
    // A view that knows too little is right in what it says.
    return trust === undefined || trust.cause === 'view-incomplete' ? 1 : trustWeights[trust.state]
  }

  observe({ routeKey, model, predicted, reported }: ParityObservation): void {
    const { live, clock } = this.#options
    const { parityWindow, parityPersistsMs } = live.settings
    if (parityWindow === 0) return
    const result = reported && this.#count(predicted, reported)
    if (!result) return
    let trust = this.#byTarget.get(routeKey)
    if (!trust) {
      trust = new ViewTrust({ window: parityWindow, persistsMs: parityPersistsMs })
      this.#byTarget.set(routeKey, trust)
    }
    const previous = this.statusOf(routeKey)
    const change = trust.observe(result, reported.promptTokens - predicted.promptTokens, clock.now())
    if (change !== undefined) this.#changed(routeKey, model, previous, change)
  }

  /** The target left, or its process is a new one. */
  forget(routeKey: string): void {
    this.#byTarget.delete(routeKey)
  }

  #count(predicted: Prediction, reported: ReportedUsage): ParityResult | undefined {
    const { counts } = this
    const result = compareWithReport(predicted, reported)
    if (result !== undefined) counts[result] += 1
    else if (reported.cachedTokens === null) counts.unreported += 1
    else counts.nothing += 1
    if (reported.cachedTokens !== null) {
      counts.predictedTokens += predicted.heldTokens
      counts.reportedTokens += reported.cachedTokens
    }
    return result
  }

  #changed(routeKey: string, model: string, previous: ViewTrustStatus, change: 'worse' | 'better'): void {
    const { logger, onDoubt, onChange } = this.#options
    const now = this.statusOf(routeKey)
    if (change === 'worse') onDoubt(routeKey)
    if (now.state === previous.state) return
    const facts = { target: routeKey, model, state: now.state, cause: now.cause }
    // One warning for each time that it falls from trust; how far it falls can be seen elsewhere.
    if (previous.state === 'trusted' && now.cause !== null) {
      logger.warn(facts, `a cache view disagrees with its engine: ${advice[now.cause]}`)
    } else {
      logger.info(facts, `a cache view is ${now.state} now`)
    }
    onChange(routeKey, now, previous)
  }
}
