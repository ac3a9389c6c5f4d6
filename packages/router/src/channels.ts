import { channel } from 'node:diagnostics_channel'
import type { RequestOutcome } from './dispatch/running-request.js'
import type { Placement } from './scheduling/placement.js'

// Several routers of a process share the channels; `router` says which one speaks. Messages hold ids and numbers, never
// content.

/** Published for each placement that is acted upon, retries included. */
export interface PickMessage {
  readonly router: object
  readonly requestId: string
  /** 1 for the first worker that is tried. */
  readonly attempt: number
  readonly placement: Placement
}

/** Published when a request is over, whatever ended it. */
export interface RequestMessage {
  readonly router: object
  readonly requestId: string
  readonly model: string
  /** The worker that was tried last; null when there was none. */
  readonly workerId: string | null
  /** Status that the caller got; null when it got none. */
  readonly status: number | null
  readonly outcome: RequestOutcome
  /** From dispatch to the first byte of the answer; null without one. */
  readonly firstByteMs: number | null
  readonly totalMs: number
}

export const pickChannel = channel('infera:router:pick')
export const requestChannel = channel('infera:router:request')
