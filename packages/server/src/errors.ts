const brand = Symbol.for('infera.error') // survives two copies of a package in one process

export type ServerErrorCode = 'INFERA_SERVER_OPTIONS' | 'INFERA_SERVER_LISTEN' | 'INFERA_SERVER_WORKERS'

/** A server that cannot be started or run as asked. The message says what to change. */
export class ServerError extends Error {
  override readonly name = 'ServerError'
  readonly [brand] = true
  constructor(
    readonly code: ServerErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}
