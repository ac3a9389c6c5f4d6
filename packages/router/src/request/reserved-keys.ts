// Top-level keys that begin with `_infera_` speak between parts of a fleet. They are never taken from a client, and never
// reach an engine by its word.
import { jsonMembers } from './json-members.js'

const prefix = '_infera_'

/** Whether a parsed body has keys that must not be passed on. */
export function hasReservedKeys(body: Readonly<Record<string, unknown>>): boolean {
  return Object.keys(body).some((key) => key.startsWith(prefix))
}

/** @param json text of an object, known to be valid JSON @returns the same text without its reserved members */
export function withoutReservedKeys(json: string): string {
  const kept: string[] = []
  for (const { key, start, end } of jsonMembers(json)) {
    if (!key.startsWith(prefix)) kept.push(json.slice(start, end))
  }
  return `{${kept.join(',')}}`
}
