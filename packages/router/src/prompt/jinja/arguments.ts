import type { Value } from './library.js'
import { Bool, Integer, isNone, isTrue, Text, typeName } from './values.js'

/** Arguments of a call in a template, with Python's rules for finding one by place or by name. */
export class Arguments {
  constructor(
    readonly positional: readonly Value[],
    readonly named: ReadonlyMap<string, Value> = new Map(),
  ) {}

  /** The argument at a place or of a name; None counts as given. */
  at(index: number, name: string): Value | undefined {
    return this.positional[index] ?? this.named.get(name)
  }

  /** @throws Error when it is missing or not a string */
  text(index: number, name: string): string {
    const value = this.at(index, name)
    if (value instanceof Text) return value.value
    throw new Error(`argument '${name}' must be str, not ${value ? typeName(value) : 'missing'}`)
  }

  /** A string, or undefined when it is absent or None. */
  optionalText(index: number, name: string): string | undefined {
    const value = this.at(index, name)
    return value === undefined || isNone(value) ? undefined : this.text(index, name)
  }

  /** An integer, or `fallback` when it is absent or None. */
  integer(index: number, name: string, fallback: number): number {
    const value = this.at(index, name)
    if (value === undefined || isNone(value)) return fallback
    if (value instanceof Integer || value instanceof Bool) return Number(value.value)
    throw new Error(`argument '${name}' must be int, not ${typeName(value)}`)
  }

  /** Truth of an argument; false when it is absent. */
  flag(index: number, name: string): boolean {
    const value = this.at(index, name)
    return value !== undefined && isTrue(value)
  }
}
