import type { Addon, IndexWrap, ViewWrap } from './addon.js'
import { translated } from './errors.js'
import type { CacheViewSettings } from './options.js'
import type { CacheView, CacheViewStats, KvEventCounts } from './ports.js'

/** The adapter of a view of the addon. */
export class NativeCacheView implements CacheView {
  readonly target: number
  readonly blockSizeTokens: number
  readonly #addon: Addon
  readonly #view: ViewWrap
  /** What became of one payload; numbers cross into JavaScript cheaper in an array than in an object. */
  readonly #counts: Float64Array

  constructor(addon: Addon, index: IndexWrap, settings: CacheViewSettings) {
    this.#addon = addon
    this.blockSizeTokens = settings.blockSizeTokens
    this.#counts = new Float64Array(addon.countNames.length)
    const { engineHashesMax, tiers, countsCopies, isPrefixMonotone } = settings
    const tierBits = tiers.reduce<number>((bits, tier) => bits | (1 << tier), 0)
    try {
      this.#view = addon.viewCreate(
        index,
        settings.blockSizeTokens,
        engineHashesMax,
        tierBits,
        countsCopies,
        isPrefixMonotone,
      )
    } catch (error) {
      throw translated(error)
    }
    this.target = addon.viewTarget(this.#view)
  }

  apply(payload: Uint8Array, counts: KvEventCounts): void {
    const made = this.#counts
    try {
      this.#addon.viewApply(this.#view, payload, made)
    } catch (error) {
      throw translated(error)
    }
    const names = this.#addon.countNames
    for (let place = 0; place < names.length; place++) {
      const more = made[place]!
      if (more !== 0) counts[names[place]!] += more
    }
  }

  clear(): void {
    this.#addon.viewClear(this.#view)
  }

  freeStep(): boolean {
    return this.#addon.viewFreeStep(this.#view)
  }

  stats(): CacheViewStats {
    return this.#addon.viewStats(this.#view)
  }

  close(): void {
    this.#addon.viewClose(this.#view)
  }
}
