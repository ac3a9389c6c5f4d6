import { InvalidRecordError } from '../errors.js'
import { parseWorkerRecord, type WorkerRecord } from '../records/worker-record.js'
import { cutValue, describeDifference, type FleetSettings, settingDifferences } from '../settings.js'
import { type Hello, linkProtocolVersion, type Refusal } from './frames.js'

export type Verdict =
  | { readonly type: 'welcome'; readonly record: WorkerRecord; readonly settings: FleetSettings }
  | { readonly type: 'refuse'; readonly refusal: Refusal }

/** Longer texts of a peer are cut before they are repeated to it and to the log. */
const textMax = 512

/** Whether a worker that says this may join, and if not, what to change. */
export function judgeHello(hello: Hello, settingsFor: (record: WorkerRecord) => FleetSettings): Verdict {
  if (hello.protocol !== linkProtocolVersion) {
    const reason = `protocol differs: the server speaks version ${linkProtocolVersion}, the worker ${hello.protocol}; run the same release on both sides`
    const refusal = { reason, setting: 'protocol', server: linkProtocolVersion, worker: hello.protocol }
    return { type: 'refuse', refusal }
  }
  let record: WorkerRecord
  try {
    record = parseWorkerRecord(hello.record)
  } catch (error) {
    if (!(error instanceof InvalidRecordError)) throw error
    return { type: 'refuse', refusal: { reason: cut(error.message) } }
  }
  const settings = settingsFor(record)
  const [difference] = settingDifferences(settings, hello.settings)
  if (difference) {
    const { name, server, worker } = difference
    const reason = describeDifference(difference)
    return {
      type: 'refuse',
      refusal: { reason, setting: name, server: cutValue(server), worker: cutValue(worker) },
    }
  }
  return { type: 'welcome', record, settings }
}

function cut(text: string): string {
  return text.length > textMax ? `${text.slice(0, textMax)}...` : text
}
