export { EngineWorker, type EngineWorkerOptions } from './engine-worker.js'
export {
  FleetDisagreementError,
  InvalidWorkerOptionsError,
  WorkerError,
  type WorkerErrorCode,
  WorkerIdTakenError,
} from './errors.js'
export type { RecordParts, WorkerPlane } from './worker-plane.js'
