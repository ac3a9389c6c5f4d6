export { SimEngine, type SimEnginePorts } from './engine/sim-engine.js'
export {
  BrokenSimError,
  EngineClosedError,
  InjectedFaultError,
  InvalidSimOptionsError,
  type RequestRefusal,
  RequestRefusedError,
  SimError,
  type SimErrorCode,
  SimListenError,
  UnusableModelError,
} from './errors.js'
export { EngineClock } from './faults/engine-clock.js'
export type { FaultDraw, FaultKind, FaultParameters, FaultPort, PlannedFault } from './faults/fault.js'
export { faultKinds } from './faults/fault-kinds.js'
export { FaultLog, type FaultRecord } from './faults/fault-log.js'
export { FaultOptions } from './faults/fault-options.js'
export type { FaultLine, FaultTarget, ProcessEnd } from './faults/fault-target.js'
export { FaultyDiscovery } from './faults/faulty-discovery.js'
export { FaultyHandler, type HandlerFault } from './faults/faulty-handler.js'
export { type EventFault, type EventSubscription, FaultyKvEvents } from './faults/faulty-kv-events.js'
export { FaultyKvSource } from './faults/faulty-kv-source.js'
export { FaultyTransport, type Sending, type TransportFault } from './faults/faulty-transport.js'
export { type FleetFacts, planFaults } from './faults/plan-faults.js'
export { ChaosOptions } from './fleet/chaos-options.js'
export { type ChaosReport, runChaos } from './fleet/chaos-run.js'
export { SimFleet } from './fleet/sim-fleet.js'
export { SimFleetOptions } from './fleet/sim-fleet-options.js'
export type { SimNode } from './fleet/sim-node.js'
export { SimHttpServer, SimHttpServerOptions } from './http/sim-http-server.js'
export {
  type BookFacts,
  type BoundFacts,
  checkAllEnded,
  checkBooks,
  checkBounds,
  checkCauses,
  checkEngines,
  checkInvariants,
  checkNoLateRetries,
  checkNoneLost,
  checkTexts,
  checkViews,
  type EngineFacts,
  type LeftoverFacts,
  type RequestFacts,
  type RunFacts,
  type ViewFacts,
} from './invariants.js'
export { simModelFolder } from './model-folder.js'
export { type ResolvedSimEngineOptions, SimEngineOptions } from './options.js'
export { type SimWorker, SimWorkerOptions, startSimWorker } from './worker/sim-worker.js'
export { type SimWorkerIdentity, simWorkerRecord, simWorkerSettings } from './worker/sim-worker-record.js'
export type { ClientOutcome, ClientReport } from './workload/client.js'
export { Oracle } from './workload/oracle.js'
export {
  type PlannedConversation,
  type PlannedTurn,
  planConversations,
} from './workload/plan-conversations.js'
export { type PreparedTurn, prepareTurns } from './workload/prepare-turns.js'
export { readWhole, StrictSseReader, ToldError, UnreadableAnswerError } from './workload/sse-reader.js'
export { WorkloadOptions } from './workload/workload-options.js'
