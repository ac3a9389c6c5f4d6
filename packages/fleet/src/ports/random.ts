/** Where chance comes from: the next number, uniform in [0, 1). */
export type Random = () => number

/** The process's own chance. */
export const systemRandom: Random = Math.random

/**
 * A repeatable stream of chance (mulberry32). Good enough for jitter and tie breaks, not for secrets.
 * @param seed any integer; only its low 32 bits count
 */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000
  }
}
