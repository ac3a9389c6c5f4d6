import type { Clock, Discovery, Logger, Random } from '@infera/fleet'
import { z } from 'zod'
import { ServerError } from '../errors.js'
import { importBackend } from './import-backend.js'

const text = () => z.string().min(1)

/** Where a fleet is found, besides those that join by link. */
export const DiscoveryBackend = z.discriminatedUnion('backend', [
  /** Nowhere else: the server itself is the registry. */
  z.strictObject({ backend: z.literal('embedded') }),
  z.strictObject({
    backend: z.literal('etcd'),
    /** `host`, `host:port` or URLs. */
    endpoints: z.array(text()).min(1),
    prefix: text().default('/infera/workers/'),
    username: text().optional(),
    password: text().optional(),
    /** PEM texts. */
    tls: z
      .strictObject({ ca: text().optional(), cert: text().optional(), key: text().optional() })
      .optional(),
  }),
  z.strictObject({
    backend: z.literal('kubernetes'),
    /** Which Pods belong to the fleet; who only registers needs none. */
    labelSelector: text().optional(),
    /** Default: that of the ServiceAccount. */
    namespace: text().optional(),
    /** Our own Pod, where we are in one. */
    podName: text().optional(),
    /** `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`. */
    host: text().optional(),
    port: z.union([z.string(), z.number()]).optional(),
  }),
])
export type DiscoveryBackend = z.output<typeof DiscoveryBackend>
export type RegistryBackend = Exclude<DiscoveryBackend, { backend: 'embedded' }>

export interface BackendPorts {
  readonly logger: Logger
  readonly clock: Clock
  readonly random: Random
}

/**
 * Opens a registry. That it cannot be reached is no failure: it is tried on.
 * @throws ServerError `INFERA_SERVER_OPTIONS` where a package is missing, or we are in no Pod
 */
export async function openRegistry(backend: RegistryBackend, ports: BackendPorts): Promise<Discovery> {
  if (backend.backend === 'etcd') {
    const { EtcdDiscovery } = await importBackend(
      '--discovery-backend etcd',
      'etcd3 cockatiel',
      () => import('@infera/fleet/etcd'),
    )
    const { backend: _backend, ...options } = backend
    return new EtcdDiscovery({ ...options, ...ports })
  }
  const { KubernetesDiscovery, readServiceAccount } = await importBackend(
    '--discovery-backend kubernetes',
    '@kubernetes/client-node',
    () => import('@infera/fleet/kubernetes'),
  )
  const account = await readServiceAccount().catch((error: unknown) => {
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      '--discovery-backend kubernetes: there is no ServiceAccount here; run in a Pod that has one, or choose another backend',
      { cause: error },
    )
  })
  const { labelSelector, podName, host, port } = backend
  return new KubernetesDiscovery({
    cluster: { host, port, ca: account.ca, token: account.token },
    namespace: backend.namespace ?? account.namespace,
    ...(labelSelector === undefined ? {} : { labelSelector }),
    ...(podName === undefined ? {} : { podName }),
    ...ports,
  })
}
