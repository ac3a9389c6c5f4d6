// Options are checked here once, for the addon and for the twins alike, so that both refuse the same with the same words.
import { InvalidNativeOptionsError } from './errors.js'
import { type CacheViewOptions, type PrefixIndexOptions, type Tier, tiers } from './ports.js'

export type PrefixIndexSettings = Required<PrefixIndexOptions>
export type CacheViewSettings = Required<CacheViewOptions>

interface Range {
  readonly min: number
  readonly max: number
  readonly default?: number
}

const safeMax = Number.MAX_SAFE_INTEGER

const indexRanges: { readonly [Name in keyof PrefixIndexSettings]: Range } = {
  pairsMax: { min: 1, max: safeMax, default: 2 ** 28 },
  bytesMax: { min: 65_536, max: safeMax, default: 8 * 2 ** 30 },
  targetsMax: { min: 1, max: 32_768, default: 4096 },
  optimisticTtlMs: { min: 0, max: safeMax, default: 2000 },
  optimisticBlocksMax: { min: 1, max: 2 ** 24, default: 2 ** 18 },
  verifyOneIn: { min: 0, max: 2 ** 32 - 1, default: 100 },
  seed: { min: 0, max: safeMax, default: 1 },
}
const viewRanges = {
  blockSizeTokens: { min: 1, max: 2 ** 32 - 1 },
  engineHashesMax: { min: 1, max: safeMax, default: 2 ** 26 },
} satisfies Record<string, Range>

function fail(name: string, what: string): never {
  throw new InvalidNativeOptionsError(`${name} ${what}`)
}

function wholeNumber(options: object, owner: string, name: string, range: Range): number {
  const value: unknown = (options as Record<string, unknown>)[name] ?? range.default
  if (typeof value === 'number' && Number.isInteger(value) && value >= range.min && value <= range.max)
    return value
  return fail(
    `${owner}.${name}`,
    `must be a whole number from ${range.min} to ${range.max}, not ${String(value)}`,
  )
}

function flag(options: object, owner: string, name: string, byDefault: boolean): boolean {
  const value: unknown = (options as Record<string, unknown>)[name] ?? byDefault
  if (typeof value === 'boolean') return value
  return fail(`${owner}.${name}`, `must be true or false, not ${String(value)}`)
}

function requireKnownNames(options: object, owner: string, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null) fail(owner, 'takes an object of options')
  for (const name of Object.keys(options))
    if (!known.includes(name)) fail(`${owner}.${name}`, `is no option; there are ${known.join(', ')}`)
}

/** @throws NativeError `INFERA_NATIVE_OPTIONS` naming the option and its range */
export function indexSettings(options: PrefixIndexOptions): PrefixIndexSettings {
  const owner = 'PrefixIndex'
  requireKnownNames(options, owner, Object.keys(indexRanges))
  const number = (name: keyof PrefixIndexSettings) => wholeNumber(options, owner, name, indexRanges[name])
  return {
    pairsMax: number('pairsMax'),
    bytesMax: number('bytesMax'),
    targetsMax: number('targetsMax'),
    optimisticTtlMs: number('optimisticTtlMs'),
    optimisticBlocksMax: number('optimisticBlocksMax'),
    verifyOneIn: number('verifyOneIn'),
    seed: number('seed'),
  }
}

const allTiers: readonly Tier[] = Object.values(tiers)

/** @throws NativeError `INFERA_NATIVE_OPTIONS` naming the option and its range */
export function viewSettings(options: CacheViewOptions): CacheViewSettings {
  const owner = 'CacheView'
  requireKnownNames(options, owner, [...Object.keys(viewRanges), 'tiers', 'countsCopies', 'isPrefixMonotone'])
  const indexed: unknown = options.tiers ?? allTiers
  if (!Array.isArray(indexed) || !indexed.every((tier) => allTiers.includes(tier)))
    fail(`${owner}.tiers`, `must be a list of tiers, each one of ${allTiers.join(', ')}`)
  return {
    blockSizeTokens: wholeNumber(options, owner, 'blockSizeTokens', viewRanges.blockSizeTokens),
    engineHashesMax: wholeNumber(options, owner, 'engineHashesMax', viewRanges.engineHashesMax),
    tiers: indexed as readonly Tier[],
    countsCopies: flag(options, owner, 'countsCopies', true),
    isPrefixMonotone: flag(options, owner, 'isPrefixMonotone', true),
  }
}
