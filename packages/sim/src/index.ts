export { SimEngine, type SimEnginePorts } from './engine/sim-engine.js'
export {
  BrokenSimError,
  EngineClosedError,
  InvalidSimOptionsError,
  type RequestRefusal,
  RequestRefusedError,
  SimError,
  type SimErrorCode,
  SimListenError,
  UnusableModelError,
} from './errors.js'
export { SimHttpServer, SimHttpServerOptions } from './http/sim-http-server.js'
export { simModelFolder } from './model-folder.js'
export { type ResolvedSimEngineOptions, SimEngineOptions } from './options.js'
export { type SimWorker, SimWorkerOptions, startSimWorker } from './worker/sim-worker.js'
export { type SimWorkerIdentity, simWorkerRecord, simWorkerSettings } from './worker/sim-worker-record.js'
