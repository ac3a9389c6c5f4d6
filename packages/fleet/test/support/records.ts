import { parseWorkerRecord, type ServerRecord, type WorkerRecord } from '../../src/index.js'

export function workerRecord(workerId: string, more: Record<string, unknown> = {}): WorkerRecord {
  return parseWorkerRecord({
    worker_id: workerId,
    url: `link://${workerId}`,
    model_name: 'm',
    request_transport: 'link',
    ...more,
  })
}

export function serverRecord(serverId: string, more: Record<string, unknown> = {}): ServerRecord {
  return { server_id: serverId, url: 'http://127.0.0.1:1', version: '0', settings: {}, ...more }
}
