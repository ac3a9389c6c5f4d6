import type { InferenceBody, InferencePath } from '../prompt/prompt-model.js'
import type { Role } from '../scheduling/policy.js'

/** A request as far as placing it goes. */
export interface RouteRequest {
  readonly path: InferencePath
  /** The parsed body. */
  readonly body: InferenceBody
  /** Which kind of worker may take it; default `mixed`. */
  readonly role?: Role
}

/** A request to be answered. */
export interface DispatchRequest extends RouteRequest {
  /** The body's exact bytes, which are what the worker gets; default: `body` as JSON. */
  readonly rawBody?: Uint8Array
  /** The client's headers, lower-case names. Only `traceparent` and `tracestate` are passed on. */
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>>
  /** Correlation id, told to the worker; default: 32 random hex digits. */
  readonly requestId?: string
}
