import type { FleetEntry, FleetEntryKind } from '../ports/discovery.js'
import { parseServerRecord } from './server-record.js'
import { parseWorkerRecord } from './worker-record.js'

/** The record as registries hold it, JSON. `status` is left out of an active worker's, as Infera 0.1 does. */
export function toWireText(entry: FleetEntry): string {
  const { status, ...identity } = entry.record
  return JSON.stringify(status === 'active' ? identity : entry.record)
}

/**
 * @throws InvalidRecordError
 * @throws SyntaxError where it is not JSON
 */
export function fromWireText(kind: FleetEntryKind, text: string): FleetEntry {
  return checkEntry({ kind, record: JSON.parse(text) })
}

/** @throws InvalidRecordError */
export function checkEntry(entry: { readonly kind: FleetEntryKind; readonly record: unknown }): FleetEntry {
  return entry.kind === 'worker'
    ? { kind: 'worker', record: parseWorkerRecord(entry.record) }
    : { kind: 'server', record: parseServerRecord(entry.record) }
}
