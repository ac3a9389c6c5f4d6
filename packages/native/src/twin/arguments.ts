// Options of constructors are checked by `../options.ts` for both implementations; these are arguments of calls.
import { InvalidNativeOptionsError } from '../errors.js'
import type { MatchOptions, Tier } from '../ports.js'

/** @throws InvalidNativeOptionsError */
export function checkMatchOptions({ nowMs, levels = 1 }: MatchOptions): Required<MatchOptions> {
  if (levels !== 1 && levels !== 2 && levels !== 3 && levels !== 4)
    throw new InvalidNativeOptionsError(`levels must be 1 to 4, not ${String(levels)}`)
  return { nowMs: checkTime(nowMs), levels }
}

/** @throws InvalidNativeOptionsError */
export function checkTier(tier: Tier): Tier {
  if (tier === 0 || tier === 1 || tier === 2 || tier === 3) return tier
  throw new InvalidNativeOptionsError(
    `tier must be 0 (device), 1 (host), 2 (disk) or 3 (remote), not ${String(tier)}`,
  )
}

/** @returns whole milliseconds @throws InvalidNativeOptionsError */
export function checkTime(nowMs: number): number {
  if (nowMs >= 0 && nowMs <= Number.MAX_SAFE_INTEGER) return Math.floor(nowMs)
  throw new InvalidNativeOptionsError(`nowMs must be milliseconds, 0 or more, not ${String(nowMs)}`)
}
