import { InvalidArgumentError } from 'commander'

/** What flags take, from text. Each throws InvalidArgumentError with what the flag wants. */

export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= min && value <= max) return value
    throw new InvalidArgumentError(`give a whole number from ${min} to ${max}.`)
  }
}

export function ratio(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && Number.isFinite(value) && value >= 0) return value
  throw new InvalidArgumentError('give a number, 0 or more.')
}

/** Seconds, with a fraction if need be; 0 and less mean none, as Infera 0.1 has it. */
export function seconds(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && Number.isFinite(value) && value <= 2_147_483) return Math.max(0, value)
  throw new InvalidArgumentError('give seconds, at most 2147483; 0: none.')
}

/** A switch that may also be said in a variable or a file: `1`, `true`, `yes`, or the opposite. */
export function truth(text: string): boolean {
  const said = text.trim().toLowerCase()
  if (['1', 'true', 'yes', 'on'].includes(said)) return true
  if (['0', 'false', 'no', 'off', ''].includes(said)) return false
  throw new InvalidArgumentError('give true or false.')
}

export function collect(value: string, previous: string[] = []): string[] {
  return [...previous, value]
}

/** Several in one, with commas, or repeated. */
export function collectList(value: string, previous: readonly string[] = []): string[] {
  const items = value.split(',').map((item) => item.trim())
  if (items.includes('')) throw new InvalidArgumentError('give values with commas between them.')
  return [...previous, ...items]
}
