import { InvalidFleetOptionsError } from '../errors.js'
import { parseWorkerRecord, type WorkerRecord } from '../records/worker-record.js'

/** A worker as a person writes it down: a record, or as little as its address and model. */
export type StaticWorker = {
  /** Base URL; a trailing slash is dropped. */
  readonly url: string
  readonly model_name: string
  /** Without it `<host>:<port>` of the URL. */
  readonly worker_id?: string
} & Readonly<Record<string, unknown>>

/**
 * Completes and checks a list of workers.
 * @throws InvalidRecordError
 * @throws InvalidFleetOptionsError for a URL that is none, and for two workers of one id
 */
export function readWorkerList(workers: readonly StaticWorker[]): WorkerRecord[] {
  const records = workers.map((worker) => {
    const url = worker.url.replace(/\/+$/, '')
    return parseWorkerRecord({ ...worker, url, worker_id: worker.worker_id ?? hostAndPort(url) })
  })
  const seen = new Set<string>()
  for (const { worker_id } of records) {
    if (seen.has(worker_id)) {
      throw new InvalidFleetOptionsError(
        `two static workers have the id '${worker_id}': give one a worker_id of its own`,
      )
    }
    seen.add(worker_id)
  }
  return records
}

function hostAndPort(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  if (!parsed || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:')) {
    throw new InvalidFleetOptionsError(`static worker url '${url}' must be an http or https URL`)
  }
  // URL drops the port that is the scheme's own, but an id always names it.
  return `${parsed.hostname}:${parsed.port || (parsed.protocol === 'https:' ? '443' : '80')}`
}
