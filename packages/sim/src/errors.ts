const brand = Symbol.for('infera.error') // survives two copies of a package in one process

export type SimErrorCode =
  | 'INFERA_SIM_INVALID_OPTIONS'
  | 'INFERA_SIM_UNUSABLE_MODEL'
  | 'INFERA_SIM_INVALID_REQUEST'
  | 'INFERA_SIM_UNKNOWN_MODEL'
  | 'INFERA_SIM_BODY_TOO_LARGE'
  | 'INFERA_SIM_QUEUE_FULL'
  | 'INFERA_SIM_CLOSED'
  | 'INFERA_SIM_LISTEN'
  | 'INFERA_SIM_INJECTED_FAULT'
  | 'INFERA_SIM_BROKEN'

/** Base of every error of this package. Switch on `code`. */
export abstract class SimError extends Error {
  abstract readonly code: SimErrorCode
  readonly retryable: boolean = false
  readonly [brand] = true
}

/** Options that cannot be used. The message names the option and what it must be. */
export class InvalidSimOptionsError extends SimError {
  override readonly name = 'InvalidSimOptionsError'
  readonly code = 'INFERA_SIM_INVALID_OPTIONS'
}

/** A tokenizer that has too few common English words as single tokens to answer with. */
export class UnusableModelError extends SimError {
  override readonly name = 'UnusableModelError'
  readonly code = 'INFERA_SIM_UNUSABLE_MODEL'
}

export type RequestRefusal =
  | 'INFERA_SIM_INVALID_REQUEST'
  | 'INFERA_SIM_UNKNOWN_MODEL'
  | 'INFERA_SIM_BODY_TOO_LARGE'
  | 'INFERA_SIM_QUEUE_FULL'
  | 'INFERA_SIM_CLOSED'

/** A request that the engine does not take. The OpenAI face turns it into a status and an error object. */
export class RequestRefusedError extends SimError {
  override readonly name = 'RequestRefusedError'
  override readonly retryable: boolean
  constructor(
    readonly code: RequestRefusal,
    message: string,
    /** The field of the body that is wrong, where one is. */
    readonly param: string | null = null,
    options?: ErrorOptions,
  ) {
    super(message, options)
    this.retryable = code === 'INFERA_SIM_QUEUE_FULL' || code === 'INFERA_SIM_CLOSED'
  }
}

/** The engine was destroyed while a request was running. */
export class EngineClosedError extends SimError {
  override readonly name = 'EngineClosedError'
  readonly code = 'INFERA_SIM_CLOSED'
  override readonly retryable = true
}

/** The HTTP listener could not be opened; `cause` is the system's error. */
export class SimListenError extends SimError {
  override readonly name = 'SimListenError'
  readonly code = 'INFERA_SIM_LISTEN'
}

/** What a fault on purpose throws where the port at which it bites has no error of its own for it. */
export class InjectedFaultError extends SimError {
  override readonly name = 'InjectedFaultError'
  readonly code = 'INFERA_SIM_INJECTED_FAULT'
  override readonly retryable = true
}

/** One of our own beliefs was false; the message says which. The engine stops rather than serve on. */
export class BrokenSimError extends SimError {
  override readonly name = 'BrokenSimError'
  readonly code = 'INFERA_SIM_BROKEN'
}

/** @throws BrokenSimError when the condition is false */
export function invariant(condition: boolean, message: string): asserts condition {
  if (!condition) throw new BrokenSimError(`broken invariant: ${message}`)
}
