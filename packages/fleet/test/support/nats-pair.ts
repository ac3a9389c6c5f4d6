import type { WorkerRecord, WorkerRequestHandler } from '../../src/index.js'
import {
  NatsTransport,
  type NatsTransportOptions,
  NatsWorker,
  type NatsWorkerOptions,
} from '../../src/nats/index.js'
import { answer } from './bodies.js'
import { workerRecord } from './records.js'

/** A front end and a worker at one broker. Disposed, both vanish. */
export interface NatsPair extends AsyncDisposable {
  readonly transport: NatsTransport
  readonly worker: NatsWorker
  readonly record: WorkerRecord
}

export const quick = { reconnectWaitMs: 20, connectTimeoutMs: 1_000 } as const

export function newNatsTransport(url: string, options: Partial<NatsTransportOptions> = {}): NatsTransport {
  return new NatsTransport({ url, ...quick, probeIntervalMs: 50, cancelIntervalMs: 20, ...options })
}

export function newNatsWorker(
  url: string,
  options: Partial<NatsWorkerOptions> & { handler?: WorkerRequestHandler } = {},
): NatsWorker {
  return new NatsWorker({
    url,
    ...quick,
    workerId: 'w:1',
    handler: async () => answer('ok'),
    queueCheckIntervalMs: 50,
    drainPollIntervalMs: 20,
    ...options,
  })
}

export function natsRecord(worker: NatsWorker | undefined, workerId = 'w:1'): WorkerRecord {
  const more = { url: `http://${workerId}`, request_transport: 'nats' }
  return workerRecord(workerId, worker ? { ...more, ext: worker.recordExt } : more)
}

export async function startNatsPair(
  url: string,
  options: {
    worker?: Partial<NatsWorkerOptions>
    transport?: Partial<NatsTransportOptions>
  } = {},
): Promise<NatsPair> {
  const worker = newNatsWorker(url, options.worker)
  const transport = newNatsTransport(url, options.transport)
  await Promise.all([worker.ready(), transport.ready()])
  return {
    transport,
    worker,
    record: natsRecord(worker, options.worker?.workerId),
    async [Symbol.asyncDispose]() {
      await worker.destroy()
      await transport.close()
    },
  }
}
