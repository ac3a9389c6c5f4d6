import {
  BodyTooLargeError,
  InvalidRequestError,
  NoWorkerError,
  OverloadedError,
  RouterClosedError,
  UnknownModelError,
  WorkersFailedError,
} from '../errors.js'

/** An answer that says what went wrong, in OpenAI's shape. */
export interface ErrorAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: {
    readonly error: {
      readonly message: string
      readonly type: string
      readonly param: string | null
      readonly code: string
    }
    readonly infera?: { readonly worker_id: string }
  }
}

const retryAfter = { 'retry-after': '1' }

/** What a client is told of an error. Text of errors that are not ours stays inside. */
export function errorAnswer(error: unknown): ErrorAnswer {
  if (error instanceof InvalidRequestError) return answer(400, error.message, 'invalid_request', error.param)
  if (error instanceof UnknownModelError) return answer(404, error.message, 'model_not_found', 'model')
  if (error instanceof BodyTooLargeError) return answer(413, error.message, 'request_too_large')
  if (error instanceof OverloadedError)
    return { ...answer(429, error.message, 'overloaded'), headers: retryAfter }
  if (error instanceof NoWorkerError)
    return { ...answer(503, error.message, 'no_worker'), headers: retryAfter }
  if (error instanceof RouterClosedError) {
    return { ...answer(503, error.message, 'shutting_down'), headers: retryAfter }
  }
  if (error instanceof WorkersFailedError) {
    const code = error.isMidStream ? 'worker_failed_mid_stream' : 'workers_failed'
    const failed = answer(error.status, error.message, code)
    return { ...failed, body: { ...failed.body, infera: { worker_id: error.workerId } } }
  }
  return answer(500, 'the server made a mistake; its log says which', 'internal_error')
}

/** What does not exist. */
export function notFound(path: string, basePath: string): ErrorAnswer {
  const where = path.length > 256 ? `${path.slice(0, 256)}...` : path
  return answer(
    404,
    `there is no ${where}; inference is at ${basePath}/chat/completions and ${basePath}/completions`,
    'not_found',
  )
}

/** What exists, but not with that method. @param allowed value of the `Allow` header */
export function methodNotAllowed(method: string, allowed: string): ErrorAnswer {
  const refused = answer(405, `${method} is not possible here; use ${allowed}`, 'method_not_allowed')
  return { ...refused, headers: { allow: allowed } }
}

function answer(status: number, message: string, code: string, param: string | null = null): ErrorAnswer {
  const type = status < 500 && status !== 429 ? 'invalid_request_error' : 'server_error'
  return { status, headers: {}, body: { error: { message, type, param, code } } }
}
