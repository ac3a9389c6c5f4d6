import type { z } from 'zod'

const brand = Symbol.for('infera.error') // survives two copies of a package in one process

export type FleetErrorCode =
  | 'INFERA_FLEET_INVALID_RECORD'
  | 'INFERA_FLEET_INVALID_OPTIONS'
  | 'INFERA_FLEET_READ_ONLY'
  | 'INFERA_FLEET_CLOSED'
  | 'INFERA_FLEET_FULL'
  | 'INFERA_FLEET_UNREACHABLE'
  | 'INFERA_FLEET_BROKEN'
  | 'INFERA_FLEET_WORKER_FAILED'
  | 'INFERA_FLEET_TIMEOUT'
  | 'INFERA_FLEET_PROTOCOL'
  | 'INFERA_FLEET_REFUSED'

/** Base of every error of this package. Switch on `code`. */
export abstract class FleetError extends Error {
  abstract readonly code: FleetErrorCode
  readonly retryable: boolean = false
  readonly [brand] = true
}

/** A record that cannot be used. The message names the field and what it must be. */
export class InvalidRecordError extends FleetError {
  override readonly name = 'InvalidRecordError'
  readonly code = 'INFERA_FLEET_INVALID_RECORD'
  constructor(kind: 'worker' | 'server', cause: z.ZodError) {
    const issue = cause.issues[0]
    super(`invalid ${kind} record: ${issue?.path.join('.') || 'record'}: ${issue?.message ?? 'unreadable'}`, {
      cause,
    })
  }
}

/** Options that cannot be used. The message names the option and what it must be. */
export class InvalidFleetOptionsError extends FleetError {
  override readonly name = 'InvalidFleetOptionsError'
  readonly code = 'INFERA_FLEET_INVALID_OPTIONS'
}

/** The registry cannot do that: it is read-only, closed, or full. */
export class DiscoveryError extends FleetError {
  override readonly name = 'DiscoveryError'
  constructor(
    readonly code: 'INFERA_FLEET_READ_ONLY' | 'INFERA_FLEET_CLOSED' | 'INFERA_FLEET_FULL',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

export type TransportErrorCode =
  | 'INFERA_FLEET_UNREACHABLE' // nothing was sent, or no status came back
  | 'INFERA_FLEET_BROKEN' // broke after the status
  | 'INFERA_FLEET_WORKER_FAILED' // the worker said that it failed
  | 'INFERA_FLEET_TIMEOUT' // an idle or total limit that the transport was given has passed
  | 'INFERA_FLEET_CLOSED' // this transport was closed

/** A request or response that did not make it. Always retryable on another worker, as long as the client saw no byte. */
export class TransportError extends FleetError {
  override readonly name = 'TransportError'
  override readonly retryable = true
  constructor(
    readonly code: TransportErrorCode,
    readonly workerId: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** Bytes that do not follow the link's grammar, or exceed one of its bounds. */
export class LinkProtocolError extends FleetError {
  override readonly name = 'LinkProtocolError'
  readonly code = 'INFERA_FLEET_PROTOCOL'
}

/** The server turned this worker away. `setting` names what differs, with both values, when that is the reason. */
export class LinkRefusedError extends FleetError {
  override readonly name = 'LinkRefusedError'
  readonly code = 'INFERA_FLEET_REFUSED'
  constructor(
    message: string,
    readonly setting?: { readonly name: string; readonly server: unknown; readonly worker: unknown },
  ) {
    super(message)
  }
}
