import { KubeConfig } from '@kubernetes/client-node'
import { KubernetesDiscovery, type KubernetesDiscoveryOptions } from '../../src/kubernetes/index.js'
import type { KubeApi } from '../support/kube-api/index.js'
import { workerRecord } from '../support/records.js'

export const labels = { 'infera.amd.com/deployment': 'd' }
export const labelSelector = 'infera.amd.com/deployment=d'
export const workerAnnotation = 'infera.amd.com/worker-info'

/** The official client's configuration for a server in this process. */
export function configFor(url: string): KubeConfig {
  const config = new KubeConfig()
  // The client refuses plain HTTP without `skipTLSVerify`.
  config.loadFromClusterAndUser({ name: 'c', server: url, skipTLSVerify: true }, { name: 'u' })
  return config
}

/** A discovery of namespace `ns` on that server, with short pauses. */
export function discoveryOn(
  api: KubeApi,
  more: Partial<KubernetesDiscoveryOptions> = {},
): KubernetesDiscovery {
  return new KubernetesDiscovery({
    kubeConfig: configFor(api.url),
    namespace: 'ns',
    labelSelector,
    backoff: { firstMs: 5, maxMs: 20 },
    ...more,
  })
}

/** A running Pod that announces a worker, unless told otherwise. */
export function addPod(
  api: KubeApi,
  name: string,
  more: {
    readonly record?: object | string | null
    readonly phase?: string
    readonly status?: Record<string, unknown>
    readonly labels?: Record<string, string>
    readonly namespace?: string
  } = {},
) {
  const { record = wireRecord(`${name}:1`) } = more
  const text = typeof record === 'string' ? record : JSON.stringify(record)
  return api.pods.create({
    metadata: {
      name,
      namespace: more.namespace ?? 'ns',
      labels: more.labels ?? labels,
      ...(record === null ? {} : { annotations: { [workerAnnotation]: text } }),
    },
    spec: { containers: [{ name: 'worker', image: 'i' }] },
    status: { phase: more.phase ?? 'Running', ...more.status },
  })
}

/** A record as a worker writes it: without a status. */
export function wireRecord(workerId: string, more: Record<string, unknown> = {}): object {
  const { status: _status, ...record } = workerRecord(workerId, more)
  return record
}

/** Changes the annotation of a Pod; null takes it away. */
export function annotate(api: KubeApi, name: string, record: object | string | null): void {
  api.pods.update('ns', name, (pod) => {
    const { [workerAnnotation]: _old, ...rest } = pod.metadata.annotations ?? {}
    const text = typeof record === 'string' ? record : JSON.stringify(record)
    const annotations = record === null ? rest : { ...rest, [workerAnnotation]: text }
    return { ...pod, metadata: { ...pod.metadata, annotations } }
  })
}

/** Changes parts of the status of a Pod. */
export function setStatus(api: KubeApi, name: string, status: Record<string, unknown>): void {
  api.pods.update('ns', name, (pod) => ({ ...pod, status: { ...pod.status, ...status } }))
}
