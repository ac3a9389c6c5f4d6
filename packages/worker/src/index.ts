export { EngineWorker } from './engine-worker.js'
export type { EngineWorkerOptions } from './engine-worker-options.js'
export {
  FleetDisagreementError,
  InvalidWorkerOptionsError,
  WorkerError,
  type WorkerErrorCode,
  WorkerIdTakenError,
} from './errors.js'
export type { RecordParts, WorkerPlane } from './worker-plane.js'
