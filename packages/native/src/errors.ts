const brand = Symbol.for('infera.error') // survives two copies of a package in one process

export type NativeErrorCode =
  | 'INFERA_NATIVE_OPTIONS'
  | 'INFERA_NATIVE_BOUND'
  | 'INFERA_NATIVE_BUFFER'
  | 'INFERA_NATIVE_BAD_SNAPSHOT'
  | 'INFERA_NATIVE_NOT_EMPTY'
  | 'INFERA_NATIVE_UNKNOWN_HANDLE'
  | 'INFERA_NATIVE_UNAVAILABLE'

/** Base of every error of this package. Switch on `code`. Whatever was thrown, nothing was changed. */
export abstract class NativeError extends Error {
  abstract readonly code: NativeErrorCode
  readonly retryable: boolean = false
  readonly [brand] = true
}

/** An option or argument that cannot be used. The message names it and what it must be. */
export class InvalidNativeOptionsError extends NativeError {
  override readonly name = 'InvalidNativeOptionsError'
  readonly code = 'INFERA_NATIVE_OPTIONS'
}

/** A bound of the index, or the machine's memory, has no room. */
export class NativeBoundError extends NativeError {
  override readonly name = 'NativeBoundError'
  readonly code = 'INFERA_NATIVE_BOUND'
}

/** A typed array that is of the wrong kind, too short, detached, or shared where it must not change. */
export class NativeBufferError extends NativeError {
  override readonly name = 'NativeBufferError'
  readonly code = 'INFERA_NATIVE_BUFFER'
}

/** A snapshot that cannot be restored here. */
export class SnapshotError extends NativeError {
  override readonly name = 'SnapshotError'
  constructor(
    readonly code: 'INFERA_NATIVE_BAD_SNAPSHOT' | 'INFERA_NATIVE_NOT_EMPTY',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** No index that is in use has this handle: it was collected, or is of another process, or a twin of another thread. */
export class UnknownHandleError extends NativeError {
  override readonly name = 'UnknownHandleError'
  readonly code = 'INFERA_NATIVE_UNKNOWN_HANDLE'
}

/** The addon is here but cannot work. Where it does not load at all, the twins serve and nothing throws. */
export class NativeUnavailableError extends NativeError {
  override readonly name = 'NativeUnavailableError'
  readonly code = 'INFERA_NATIVE_UNAVAILABLE'
}

/** What the addon threw, as ours: it throws plain errors with one of our codes. Anything else comes back as it is. */
export function translated(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof NativeError || !('code' in error)) return error
  const { code, message } = error
  const options = { cause: error }
  switch (code) {
    case 'INFERA_NATIVE_OPTIONS':
      return new InvalidNativeOptionsError(message, options)
    case 'INFERA_NATIVE_BOUND':
      return new NativeBoundError(message, options)
    case 'INFERA_NATIVE_BUFFER':
      return new NativeBufferError(message, options)
    case 'INFERA_NATIVE_BAD_SNAPSHOT':
    case 'INFERA_NATIVE_NOT_EMPTY':
      return new SnapshotError(code, message, options)
    case 'INFERA_NATIVE_UNAVAILABLE':
      return new NativeUnavailableError(message, options)
    default:
      return error
  }
}
