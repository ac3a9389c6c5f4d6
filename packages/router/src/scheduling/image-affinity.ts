/** Images remembered per target. */
const imagesMax = 256

/** Which images each target was sent last. A Map remembers order of insertion, so its first key is the oldest. */
export class ImageAffinity {
  readonly #heldBy = new Map<string, Map<bigint, true>>()

  /** How many of these keys the target was sent; repeated keys count each time. */
  countHeld(routeKey: string, keys: readonly bigint[]): number {
    const held = this.#heldBy.get(routeKey)
    return held ? keys.reduce((count, key) => (held.has(key) ? count + 1 : count), 0) : 0
  }

  /** The target is sent these images: they become its newest. */
  record(routeKey: string, keys: readonly bigint[]): void {
    if (keys.length === 0) return
    let held = this.#heldBy.get(routeKey)
    if (!held) {
      held = new Map()
      this.#heldBy.set(routeKey, held)
    }
    for (const key of keys) {
      held.delete(key)
      held.set(key, true)
      if (held.size > imagesMax) held.delete(held.keys().next().value as bigint)
    }
  }

  forget(routeKey: string): void {
    this.#heldBy.delete(routeKey)
  }
}
