export { type PickMessage, pickChannel, type RequestMessage, requestChannel } from './channels.js'
export type { DispatchResult } from './dispatch/dispatcher.js'
export type { RequestOutcome } from './dispatch/running-request.js'
export type { Events } from './emitter.js'
export {
  BodyTooLargeError,
  InvalidRequestError,
  InvalidRouterOptionsError,
  ModelFolderError,
  NoWorkerError,
  OverloadedError,
  PromptError,
  RouterClosedError,
  RouterError,
  type RouterErrorCode,
  UnknownModelError,
  WorkersFailedError,
} from './errors.js'
export type { ModelOptions, PolicyName, RouterOptions, RouterUpdate } from './options.js'
export type { CacheState } from './registry/kv-follower.js'
export { anyModel, type PromptStatus } from './request/prompt-book.js'
export type { DispatchRequest, RouteRequest } from './request/route-request.js'
export { type OptionsInForce, Router, type WorkerView } from './router.js'
export type { RouterEvent, RouterState, WorkerLeftReason } from './router-events.js'
export type { CacheHints, Retention } from './scheduling/cache-hints.js'
export type { SkippedWorker, SkipReason } from './scheduling/filter.js'
export type { CandidateReport, NoLocalityReason, Placement } from './scheduling/placement.js'
export type {
  Candidate,
  Cost,
  PolicyChoice,
  PolicyQuestion,
  Role,
  RoutingPolicy,
} from './scheduling/policy.js'
export type { RouterStats } from './stats.js'
