export { EtcdDiscovery, type EtcdDiscoveryOptions } from './etcd-discovery.js'
export type { EtcdStatus } from './etcd-status.js'
