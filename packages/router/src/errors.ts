const brand = Symbol.for('infera.error') // survives two copies of a package in one process

export type RouterErrorCode =
  | 'INFERA_ROUTER_INVALID_OPTIONS'
  | 'INFERA_ROUTER_INVALID_REQUEST'
  | 'INFERA_ROUTER_UNKNOWN_MODEL'
  | 'INFERA_ROUTER_NO_WORKER'
  | 'INFERA_ROUTER_WORKERS_FAILED'
  | 'INFERA_ROUTER_BODY_TOO_LARGE'
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
