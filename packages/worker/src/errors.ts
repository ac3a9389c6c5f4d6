import { describeDifference, type SettingDifference } from '@infera/fleet'

const brand = Symbol.for('infera.error') // survives two copies of a package in one process

export type WorkerErrorCode = 'INFERA_WORKER_OPTIONS' | 'INFERA_WORKER_DISAGREES' | 'INFERA_WORKER_ID_TAKEN'

/** Base of every error of this package. Switch on `code`. */
export abstract class WorkerError extends Error {
  abstract readonly code: WorkerErrorCode
  readonly [brand] = true
}

/** Options that cannot be used. The message names the option and what it must be. */
export class InvalidWorkerOptionsError extends WorkerError {
  override readonly name = 'InvalidWorkerOptionsError'
  readonly code = 'INFERA_WORKER_OPTIONS'
}

/** A server of the fleet has other settings than this worker, which is to run only where they agree. */
export class FleetDisagreementError extends WorkerError {
  override readonly name = 'FleetDisagreementError'
  readonly code = 'INFERA_WORKER_DISAGREES'
  constructor(
    readonly serverId: string,
    readonly differences: readonly SettingDifference[],
  ) {
    super(`this worker and server '${serverId}' disagree: ${differences.map(describeDifference).join('; ')}`)
  }
}

/** Another process announces itself under this worker's id, and has it now. */
export class WorkerIdTakenError extends WorkerError {
  override readonly name = 'WorkerIdTakenError'
  readonly code = 'INFERA_WORKER_ID_TAKEN'
  constructor(readonly workerId: string) {
    super(`another process announces itself as worker '${workerId}': give each its own host and port`)
  }
}
