import type { RequestTransport, TransportRequest, TransportResponse, WorkerRecord } from '@infera/fleet'

/** Workers in memory that answer everything at once, with `{}` unless told. For tests only. */
export class InstantTransport implements RequestTransport {
  /** What a worker says. */
  answer: (workerId: string) => { text: string; headers?: Readonly<Record<string, string>> } = () => ({
    text: '{}',
  })
  readonly calls: { readonly workerId: string; readonly request: TransportRequest }[] = []

  constructor(readonly kind: WorkerRecord['request_transport'] = 'link') {}

  send(worker: WorkerRecord, request: TransportRequest): Promise<TransportResponse> {
    this.calls.push({ workerId: worker.worker_id, request })
    const { text, headers } = this.answer(worker.worker_id)
    return Promise.resolve({
      status: 200,
      headers: { 'content-type': 'application/json', ...headers },
      body: oneChunk(text),
    })
  }

  close(): Promise<void> {
    return Promise.resolve()
  }
}

async function* oneChunk(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text)
}
