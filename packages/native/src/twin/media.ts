import { type Tier, tiers } from '../ports.js'

const tierOfWord: ReadonlyMap<string, Tier> = new Map([
  ['GPU', tiers.device],
  ['CPU', tiers.host],
  ['CPU_PINNED', tiers.host],
  ['CPU_TIER1', tiers.host],
  ['CPU_TIER2', tiers.host],
  ['DISK', tiers.disk],
  ['STORAGE', tiers.disk],
  ['EXTERNAL', tiers.remote],
])

/**
 * The tier of an event's `medium`, without regard to the case of its letters; undefined for words that are not known, since
 * connectors make up words, and a block counted in a wrong tier is worse than one not counted.
 */
export function tierOfMedium(medium: string): Tier | undefined {
  // Letters beyond ASCII have upper cases within it (as the dotless i), and are no spelling of these words.
  return tierOfWord.get(medium.replace(/[a-z]+/g, (letters) => letters.toUpperCase()))
}
