export { type AddressProber, httpAddressProber } from './checked/address-probe.js'
export { CheckedDiscovery, type CheckedDiscoveryOptions } from './checked/checked-discovery.js'
export type { WorkerProblem } from './checked/worker-problem.js'
export {
  EmbeddedDiscovery,
  type EmbeddedDiscoveryOptions,
  type EmbeddedRegistration,
} from './embedded/embedded-discovery.js'
export {
  DiscoveryError,
  FleetError,
  type FleetErrorCode,
  InvalidFleetOptionsError,
  InvalidRecordError,
  LinkProtocolError,
  LinkRefusedError,
  TransportError,
  type TransportErrorCode,
} from './errors.js'
export { HttpTransport, type HttpTransportOptions } from './http/http-transport.js'
export type { HostAddress, HostResolver } from './link/dns-targets.js'
export { LINK_PATH } from './link/frames.js'
export type { LinkLimits } from './link/limits.js'
export { LinkServer, type LinkServerOptions } from './link/link-server.js'
export { LinkWorker, type LinkWorkerEvent, type LinkWorkerOptions } from './link/link-worker.js'
export type { LinkWelcome } from './link/membership.js'
export type { RefusedWorker } from './link/refusals.js'
export { type Clock, sleep, systemClock, type Timer } from './ports/clock.js'
export type { Discovery, FleetChange, FleetEntry, FleetEntryKind, Registration } from './ports/discovery.js'
export type {
  KvEventBatch,
  KvEventMessage,
  KvEventSource,
  KvEventTransport,
  KvViewMessage,
  LoadReport,
} from './ports/kv-events.js'
export { type LogFields, type Logger, silentLogger } from './ports/logger.js'
export { type Random, seededRandom, systemRandom } from './ports/random.js'
export type {
  RequestTransport,
  TransportRequest,
  TransportResponse,
  WorkerRequestHandler,
} from './ports/request-transport.js'
export { parseServerRecord, ServerRecord } from './records/server-record.js'
export { expandTargets, type RouteTarget } from './records/targets.js'
export { parseWorkerRecord, WorkerRecord } from './records/worker-record.js'
export {
  describeDifference,
  type FleetSettings,
  type SettingDifference,
  type SettingEffect,
  settingDifferences,
  settingsOfModel,
  statedSettings,
} from './settings.js'
export { type HealthProber, httpHealthProber } from './static/health-probe.js'
export { StaticDiscovery, type StaticDiscoveryOptions } from './static/static-discovery.js'
export type { StaticWorker } from './static/worker-list.js'
export { VirtualClock } from './virtual-clock.js'
