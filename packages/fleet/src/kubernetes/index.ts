export { SERVER_ANNOTATION, WORKER_ANNOTATION } from './annotations.js'
export {
  type ClusterAccess,
  readServiceAccount,
  type ServiceAccount,
  type TokenSource,
} from './kube-config.js'
export { KubernetesDiscovery, type KubernetesDiscoveryOptions } from './kubernetes-discovery.js'
export type { KubernetesStatus, NamespaceStatus } from './namespace-status.js'
export type { ForeignAddress } from './verdict.js'
