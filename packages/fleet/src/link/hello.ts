import { InvalidRecordError } from '../errors.js'
import { parseWorkerRecord, type WorkerRecord } from '../records/worker-record.js'
import { type FleetSettings, firstDifference } from '../settings.js'
import { type Hello, linkProtocolVersion, type Refusal } from './frames.js'

export type Verdict =
  | { readonly type: 'welcome'; readonly record: WorkerRecord; readonly settings: FleetSettings }
  | { readonly type: 'refuse'; readonly refusal: Refusal }

/** Longer texts of a peer are cut before they are repeated to it and to the log. */
const textMax = 512

/** Whether a worker that says this may join, and if not, what to change. */
export function judgeHello(hello: Hello, settingsFor: (record: WorkerRecord) => FleetSettings): Verdict {
  if (hello.protocol !== linkProtocolVersion) return refuse('protocol', linkProtocolVersion, hello.protocol)
  let record: WorkerRecord
  try {
    record = parseWorkerRecord(hello.record)
  } catch (error) {
    if (!(error instanceof InvalidRecordError)) throw error
    return { type: 'refuse', refusal: { reason: cut(error.message) } }
  }
  const settings = settingsFor(record)
  const difference = firstDifference(settings, hello.settings)
  if (difference) return refuse(difference.name, difference.server, difference.worker)
  return { type: 'welcome', record, settings }
}

function refuse(setting: string, server: unknown, worker: unknown): Verdict {
  const [said, known] = [cutValue(worker), cutValue(server)]
  const reason = `setting '${setting}' differs: the server has ${JSON.stringify(known)}, the worker ${JSON.stringify(said)}`
  return { type: 'refuse', refusal: { reason, setting, server: known, worker: said } }
}

function cutValue(value: unknown): unknown {
  return typeof value === 'string' ? cut(value) : value
}

function cut(text: string): string {
  return text.length > textMax ? `${text.slice(0, textMax)}...` : text
}
