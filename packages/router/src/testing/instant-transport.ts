import type { RequestTransport, TransportRequest, TransportResponse, WorkerRecord } from '@infera/fleet'

/** Workers in memory that answer everything at once with `{}`. For tests only. */
export class InstantTransport implements RequestTransport {
  readonly calls: { readonly workerId: string; readonly request: TransportRequest }[] = []

  constructor(readonly kind: WorkerRecord['request_transport'] = 'link') {}

  send(worker: WorkerRecord, request: TransportRequest): Promise<TransportResponse> {
    this.calls.push({ workerId: worker.worker_id, request })
    return Promise.resolve({ status: 200, headers: { 'content-type': 'application/json' }, body: oneChunk() })
  }

  close(): Promise<void> {
    return Promise.resolve()
  }
}

async function* oneChunk(): AsyncGenerator<Uint8Array> {
  yield Buffer.from('{}')
}
