import type { Random } from '@infera/fleet'

/** Position of the smallest key; keys compare element by element, and the first of equals wins. Not for empty lists. */
export function pickFirstLowest(keys: readonly (readonly number[])[]): number {
  let best = 0
  for (let index = 1; index < keys.length; index++) {
    if (compare(keys[index] as readonly number[], keys[best] as readonly number[]) < 0) best = index
  }
  return best
}

/** As `pickFirstLowest`, but any of equals wins, each with the same chance. */
export function pickAnyLowest(keys: readonly (readonly number[])[], random: Random): number {
  const lowest = keys[pickFirstLowest(keys)] as readonly number[]
  const equals: number[] = []
  for (const [index, key] of keys.entries()) if (compare(key, lowest) === 0) equals.push(index)
  return equals[Math.floor(random() * equals.length)] as number
}

function compare(one: readonly number[], other: readonly number[]): number {
  for (let part = 0; part < one.length; part++) {
    const difference = (one[part] as number) - (other[part] as number)
    if (difference !== 0) return difference
  }
  return 0
}
