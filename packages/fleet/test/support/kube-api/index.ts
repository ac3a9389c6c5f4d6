export type { ApiCall, Fault } from './faults.js'
export { KubeApi, type KubeApiOptions } from './kube-api.js'
export type { KubeObject, KubeResource } from './objects.js'
