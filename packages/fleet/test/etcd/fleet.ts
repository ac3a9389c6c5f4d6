import { EtcdDiscovery, type EtcdDiscoveryOptions } from '../../src/etcd/index.js'
import { workerRecord } from '../support/records.js'

/** A discovery on that etcd, with short pauses and leases. */
export function discoveryOn(url: string, more: Partial<EtcdDiscoveryOptions> = {}): EtcdDiscovery {
  return new EtcdDiscovery({
    endpoints: [url],
    leaseTtlSeconds: 2,
    heartbeatMs: 100,
    requestTimeoutMs: 2_000,
    pingIntervalMs: 100,
    dataLossGraceMs: 1_000,
    backoff: { firstMs: 20, maxMs: 100 },
    ...more,
  })
}

/** A record as a worker of Infera 0.1 writes it: without a status. */
export function wireRecord(workerId: string, more: Record<string, unknown> = {}): object {
  const { status: _status, ...record } = workerRecord(workerId, more)
  return record
}

export const worker = (id: string, more: Record<string, unknown> = {}) =>
  ({ kind: 'worker', record: workerRecord(id, more) }) as const
