/** With every pick what was added before fades by this factor: half of it is gone after 23 picks. */
const decayPerPick = 0.97
/** What has faded below this is forgotten. */
const forgottenBelow = 0.001
/** Blocks charged for a request whose size is not known. */
const unknownCost = 1

/**
 * Blocks that targets were given to compute lately. It keeps a signal of load where requests do not overlap in time,
 * so that every tie would otherwise fall on the same target.
 */
export class RecentLoad {
  readonly #blocks = new Map<string, number>()

  of(routeKey: string): number {
    return this.#blocks.get(routeKey) ?? 0
  }

  /** A target was picked for a request: everything fades, then it is charged the blocks that it does not hold. */
  charge(routeKey: string, requestBlocks: number, overlapBlocks: number): void {
    for (const [key, blocks] of this.#blocks) {
      const faded = blocks * decayPerPick
      if (faded < forgottenBelow) this.#blocks.delete(key)
      else this.#blocks.set(key, faded)
    }
    const added = requestBlocks === 0 ? unknownCost : requestBlocks - overlapBlocks
    if (added > 0) this.#blocks.set(routeKey, this.of(routeKey) + added)
  }

  forget(routeKey: string): void {
    this.#blocks.delete(routeKey)
  }
}
