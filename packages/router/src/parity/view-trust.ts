/** How far a view is believed: a doubted one counts half, a distrusted one nothing. */
export type TrustState = 'trusted' | 'doubted' | 'distrusted'

/** How far a target's view is believed, and why not more. */
export interface ViewTrustStatus {
  readonly state: TrustState
  readonly cause: DoubtCause | null
}

/**
 * How a prediction fared.
 * `agrees`; `over-claims`: the engine reused less than the view says it holds; `under-claims`: it reused more; `prompt-differs`: its
 * prompt has another number of tokens than ours, so that nothing else can be compared.
 */
export type ParityResult = 'agrees' | 'over-claims' | 'under-claims' | 'prompt-differs'

/** What is likely behind disagreement. */
export type DoubtCause =
  /** One token more or less, always: a BOS that one side adds. */
  | 'bos-differs'
  /** The chat template or the tokenizer here is not the engine's. */
  | 'prompt-differs'
  /** Removals were lost, or the engine drops blocks without a word. */
  | 'view-stale'
  /** Events are missing, or the engine caches what it does not report. */
  | 'view-incomplete'

export interface Prediction {
  /** Tokens of the prompt, as they are counted here. */
  readonly promptTokens: number
  /** How many of them the target's view says it holds, from the first on. */
  readonly heldTokens: number
  readonly blockSizeTokens: number
}

/** @param reported.cachedTokens null: only prompts can be compared */
export function compareWithReport(
  predicted: Prediction,
  reported: { readonly promptTokens: number; readonly cachedTokens: number | null },
): ParityResult | undefined {
  if (reported.promptTokens !== predicted.promptTokens) return 'prompt-differs'
  if (reported.cachedTokens === null) return undefined
  // An engine computes at least one token, and so the whole last block, anew; and it has moved on since the pick.
  const tolerance = Math.max(2 * predicted.blockSizeTokens, predicted.promptTokens / 10)
  const excess = predicted.heldTokens - reported.cachedTokens
  if (Math.abs(excess) <= tolerance) {
    // Nothing held and nothing reused is what two that do not know each other agree on as well.
    return predicted.heldTokens === 0 && reported.cachedTokens === 0 ? undefined : 'agrees'
  }
  return excess > 0 ? 'over-claims' : 'under-claims'
}

export const trustWeights: Readonly<Record<TrustState, number>> = { trusted: 1, doubted: 0.5, distrusted: 0 }

/** Of several views the one that is believed least; trusted where there is none. */
export function leastTrusted(statuses: readonly ViewTrustStatus[]): ViewTrustStatus {
  let least: ViewTrustStatus = { state: 'trusted', cause: null }
  for (const status of statuses) if (trustWeights[status.state] < trustWeights[least.state]) least = status
  return least
}

const worse: Readonly<Record<TrustState, TrustState>> = {
  trusted: 'doubted',
  doubted: 'distrusted',
  distrusted: 'distrusted',
}
const better: Readonly<Record<TrustState, TrustState>> = {
  trusted: 'trusted',
  doubted: 'trusted',
  distrusted: 'doubted',
}

/** Of the latest results this share must disagree before a view is believed less. */
const disagreeingShare = 0.75

export interface ViewTrustOptions {
  /** Results that a change of state takes, >= 2; half as many that agree, one after the other, restore it. */
  readonly window: number
  /** Disagreement that is younger is a burst, and no persistent one: requests that share a new prefix overtake its events. */
  readonly persistsMs: number
  readonly initial?: TrustState
}

/** Whether the view of one target is believed, by how its predictions fare. Pure: time is told. */
export class ViewTrust {
  readonly #options: ViewTrustOptions
  #state: TrustState
  #cause: DoubtCause | null = null
  /** Since the last change, oldest first. */
  #latest: { readonly result: ParityResult; readonly tokenDifference: number; readonly atMs: number }[] = []

  constructor(options: ViewTrustOptions) {
    this.#options = options
    this.#state = options.initial ?? 'trusted'
  }

  get state(): TrustState {
    return this.#state
  }

  /** Why it is not trusted; null while it is. */
  get cause(): DoubtCause | null {
    return this.#cause
  }

  /**
   * @param tokenDifference the engine's count of the prompt's tokens less ours
   * @returns whether the state is another one now, or is called for anew while it is as bad as can be
   */
  observe(result: ParityResult, tokenDifference: number, nowMs: number): 'worse' | 'better' | undefined {
    const { window, persistsMs } = this.#options
    this.#latest.push({ result, tokenDifference, atMs: nowMs })
    if (this.#latest.length > window) this.#latest.shift()
    const disagreeing = this.#latest.filter((each) => each.result !== 'agrees')
    const isPersistent =
      this.#latest.length === window &&
      disagreeing.length >= window * disagreeingShare &&
      nowMs - (disagreeing[0]?.atMs ?? nowMs) >= persistsMs
    if (isPersistent) {
      this.#cause = causeOf(disagreeing)
      this.#latest = []
      this.#state = worse[this.#state]
      return 'worse'
    }
    const restoring = this.#latest.slice(-Math.ceil(window / 2))
    const hasRestored =
      this.#state !== 'trusted' &&
      restoring.length === Math.ceil(window / 2) &&
      restoring.every((each) => each.result === 'agrees')
    if (!hasRestored) return undefined
    this.#latest = []
    this.#state = better[this.#state]
    if (this.#state === 'trusted') this.#cause = null
    return 'better'
  }
}

function causeOf(
  disagreeing: readonly { readonly result: ParityResult; readonly tokenDifference: number }[],
): DoubtCause {
  const counts = new Map<ParityResult, number>()
  for (const { result } of disagreeing) counts.set(result, (counts.get(result) ?? 0) + 1)
  const [[commonest] = ['over-claims']] = [...counts].sort(([, one], [, other]) => other - one)
  if (commonest === 'over-claims') return 'view-stale'
  if (commonest === 'under-claims') return 'view-incomplete'
  const differences = new Set(
    disagreeing.filter(({ result }) => result === 'prompt-differs').map((each) => each.tokenDifference),
  )
  const [difference = 0] = differences
  return differences.size === 1 && Math.abs(difference) === 1 ? 'bos-differs' : 'prompt-differs'
}
