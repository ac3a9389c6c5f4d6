import type { FleetEntryKind } from '../ports/discovery.js'

/** A missing `/` at the end is added, as Infera 0.1 does. */
export function normalPrefix(prefix: string): string {
  return prefix.endsWith('/') ? prefix : `${prefix}/`
}

/** Servers stand beside the workers: `/infera/servers/` for `/infera/workers/`. */
export function serverPrefixOf(workerPrefix: string): string {
  const parent = workerPrefix.replace(/[^/]*\/$/, '')
  return `${parent}servers/`
}

/** Ids are not escaped. */
export function keyOf(prefix: string, id: string): Buffer {
  return Buffer.from(prefix + id)
}

/** First key after all that begin with `prefix`: its last byte and one. */
export function rangeEndOf(prefix: string): Buffer {
  const end = Buffer.from(prefix)
  const last = end.length - 1
  end.writeUInt8((end[last] as number) + 1, last)
  return end
}

/** What begins with what, by the kind of record. */
export type Prefixes = Readonly<Record<FleetEntryKind, string>>
