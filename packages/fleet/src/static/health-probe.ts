import { request } from 'undici'
import type { WorkerRecord } from '../records/worker-record.js'

/** Asks a worker whether it is well. A rejection counts as no. */
export type HealthProber = (worker: WorkerRecord, options: { signal: AbortSignal }) => Promise<boolean>

/** `GET <url>/health`, well when the status is 2xx. */
export const httpHealthProber: HealthProber = async (worker, { signal }) => {
  const { statusCode, body } = await request(`${worker.url}/health`, { signal, reset: true })
  // An unread body would hold its socket.
  await body.dump()
  return statusCode >= 200 && statusCode < 300
}
