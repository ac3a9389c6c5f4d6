const brand = Symbol.for('infera.error') // survives two copies of a package in one process

export type RouterErrorCode =
  | 'INFERA_ROUTER_INVALID_OPTIONS'
  | 'INFERA_ROUTER_INVALID_REQUEST'
  | 'INFERA_ROUTER_UNKNOWN_MODEL'
  | 'INFERA_ROUTER_NO_WORKER'
  | 'INFERA_ROUTER_WORKERS_FAILED'
  | 'INFERA_ROUTER_BODY_TOO_LARGE'
  | 'INFERA_ROUTER_OVERLOADED'
  | 'INFERA_ROUTER_CLOSED'
  | 'INFERA_ROUTER_MODEL_FOLDER'
  | 'INFERA_ROUTER_TEMPLATE_FAILED'
  | 'INFERA_ROUTER_NOT_TOKENIZABLE'

/** Base of every error of this package. Switch on `code`. */
export abstract class RouterError extends Error {
  abstract readonly code: RouterErrorCode
  readonly retryable: boolean = false
  readonly [brand] = true
}

/** Options that cannot be used. The message names the option and what it must be. */
export class InvalidRouterOptionsError extends RouterError {
  override readonly name = 'InvalidRouterOptionsError'
  readonly code = 'INFERA_ROUTER_INVALID_OPTIONS'
}

/** A request that no worker could answer as it stands. The message says what to send instead. */
export class InvalidRequestError extends RouterError {
  override readonly name = 'InvalidRequestError'
  readonly code = 'INFERA_ROUTER_INVALID_REQUEST'
  /** @param param path of the field at fault, as in `messages[0].role`; null when the body as a whole is */
  constructor(
    readonly param: string | null,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** Nobody in this fleet has ever heard of the model. */
export class UnknownModelError extends RouterError {
  override readonly name = 'UnknownModelError'
  readonly code = 'INFERA_ROUTER_UNKNOWN_MODEL'
  constructor(
    readonly modelId: string,
    options?: ErrorOptions,
  ) {
    super(`model '${clip(modelId)}' is not served here; GET /v1/models lists those that are`, options)
  }
}

/** No live worker can take this model now. Retry after the next membership change. */
export class NoWorkerError extends RouterError {
  override readonly name = 'NoWorkerError'
  readonly code = 'INFERA_ROUTER_NO_WORKER'
  override readonly retryable = true
  /** @param why what stands in the way, when it is known, as in `2 draining` */
  constructor(
    readonly modelId: string,
    why = '',
    options?: ErrorOptions,
  ) {
    super(`no live worker can take model '${clip(modelId)}' now${why === '' ? '' : `: ${why}`}`, options)
  }
}

/** Every worker that was tried failed without an answer, or one failed in the middle of its answer. */
export class WorkersFailedError extends RouterError {
  override readonly name = 'WorkersFailedError'
  readonly code = 'INFERA_ROUTER_WORKERS_FAILED'
  override readonly retryable = true
  /** The worker that failed last. */
  readonly workerId: string
  /** 504 when it failed by a time limit, else 502. */
  readonly status: 502 | 504
  /** Workers tried for this request, the one that failed last included. */
  readonly attempts: number
  /** Bytes of the answer were already handed out. */
  readonly isMidStream: boolean
  constructor(
    facts: { workerId: string; status: 502 | 504; attempts: number; isMidStream: boolean },
    options?: ErrorOptions,
  ) {
    super(
      facts.isMidStream
        ? `worker '${facts.workerId}' failed mid-stream`
        : `worker '${facts.workerId}' failed before its first byte; ${facts.attempts} tried`,
      options,
    )
    this.workerId = facts.workerId
    this.status = facts.status
    this.attempts = facts.attempts
    this.isMidStream = facts.isMidStream
  }
}

/** A request body beyond `bodyBytesMax`. */
export class BodyTooLargeError extends RouterError {
  override readonly name = 'BodyTooLargeError'
  readonly code = 'INFERA_ROUTER_BODY_TOO_LARGE'
  constructor(
    readonly limitBytes: number,
    options?: ErrorOptions,
  ) {
    super(`the request body is larger than ${limitBytes} bytes; send less, or raise bodyBytesMax`, options)
  }
}

/** As many requests as `requestsInFlightMax` allows are in flight. */
export class OverloadedError extends RouterError {
  override readonly name = 'OverloadedError'
  readonly code = 'INFERA_ROUTER_OVERLOADED'
  override readonly retryable = true
  constructor(
    readonly limit: number,
    options?: ErrorOptions,
  ) {
    super(
      `${limit} requests are in flight, which is the limit; retry later, or raise requestsInFlightMax`,
      options,
    )
  }
}

/** The router is not started, is draining, or is closed. */
export class RouterClosedError extends RouterError {
  override readonly name = 'RouterClosedError'
  readonly code = 'INFERA_ROUTER_CLOSED'
  override readonly retryable = true
  constructor(
    readonly state: string,
    options?: ErrorOptions,
  ) {
    super(`the router takes no requests: it is ${state}`, options)
  }
}

/** A prompt that cannot be turned into tokens. Routing goes on without locality; the reason is counted. */
export class PromptError extends RouterError {
  override readonly name = 'PromptError'
  constructor(
    readonly code: 'INFERA_ROUTER_TEMPLATE_FAILED' | 'INFERA_ROUTER_NOT_TOKENIZABLE',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** A model folder that cannot be used. The message names the file and what it must hold. */
export class ModelFolderError extends RouterError {
  override readonly name = 'ModelFolderError'
  readonly code = 'INFERA_ROUTER_MODEL_FOLDER'
}

/** Client-given text that goes into a message, at the length at which logs cut it as well. */
function clip(text: string): string {
  return text.length <= 256 ? text : `${text.slice(0, 256)}...`
}
