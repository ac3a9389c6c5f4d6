import type { InferenceBody, InferencePath } from '../prompt/prompt-model.js'
import type { Role } from '../scheduling/policy.js'

/** A request as far as placing it goes. */
export interface RouteRequest {
  readonly path: InferencePath
  /** The parsed body. */
  readonly body: InferenceBody
  /** Which kind of worker may take it; default `mixed`. */
  readonly role?: Role
  /**
   * The body's exact bytes, which are what the worker gets, and what its prompt is read from: a parsed body has lost the order
   * of some keys, large numbers, and that 1.0 is no integer. Default: `body` as JSON.
   */
  readonly rawBody?: Uint8Array
}

/** A request to be answered. */
export interface DispatchRequest extends RouteRequest {
  /** The client's headers, lower-case names. Only `traceparent` and `tracestate` are passed on. */
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>>
  /** Correlation id, told to the worker; default: 32 random hex digits. */
  readonly requestId?: string
}
