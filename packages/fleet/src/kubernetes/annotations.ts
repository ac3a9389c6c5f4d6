import { DiscoveryError } from '../errors.js'
import type { FleetEntry, FleetEntryKind } from '../ports/discovery.js'
import { toWireText } from '../records/wire-text.js'

/** Where the reference keeps a worker's record: an annotation of the worker's own Pod. */
export const WORKER_ANNOTATION = 'infera.amd.com/worker-info'
/** Where our servers keep theirs. The reference does not read it. */
export const SERVER_ANNOTATION = 'infera.amd.com/server-info'

export const annotationOf: Readonly<Record<FleetEntryKind, string>> = {
  worker: WORKER_ANNOTATION,
  server: SERVER_ANNOTATION,
}

/** Kubernetes allows this much for all annotations of an object together, keys and values, in bytes. */
const annotationsMaxBytes = 262_144

/**
 * The record as its annotation says it.
 * @throws DiscoveryError `INFERA_FLEET_FULL` where no Pod could hold it
 */
export function toAnnotation(entry: FleetEntry): string {
  const text = toWireText(entry)
  const sizeBytes = Buffer.byteLength(text)
  if (sizeBytes > annotationsMaxBytes / 2) {
    throw new DiscoveryError(
      'INFERA_FLEET_FULL',
      `the ${entry.kind} record takes ${sizeBytes} bytes; an annotation of ours may take ${annotationsMaxBytes / 2}: shorten it`,
    )
  }
  return text
}
