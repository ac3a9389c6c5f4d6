import { parseWorkerRecord, type WorkerRecord } from '@infera/fleet'
import type { RecordParts } from './worker-plane.js'

/** Later parts win; what stands in `ext` and in its settings is merged. @throws InvalidRecordError */
export function mergeRecords(record: WorkerRecord, ...parts: readonly RecordParts[]): WorkerRecord {
  let merged = record
  for (const part of parts) {
    const ext: Record<string, unknown> = { ...merged.ext, ...part.ext }
    const settings = { ...settingsIn(merged.ext), ...settingsIn(part.ext) }
    if (Object.keys(settings).length > 0) ext.settings = settings
    merged = parseWorkerRecord({ ...merged, ...part, ...(Object.keys(ext).length > 0 ? { ext } : {}) })
  }
  return merged
}

function settingsIn(ext: RecordParts['ext']): Record<string, unknown> {
  const settings = ext?.settings
  return typeof settings === 'object' && settings !== null ? { ...settings } : {}
}
