import type { RequestRefusal, RequestRefusedError } from '../errors.js'

interface ErrorForm {
  readonly status: number
  readonly type: string
}

const forms: Record<RequestRefusal, ErrorForm> = {
  INFERA_SIM_INVALID_REQUEST: { status: 400, type: 'BadRequestError' },
  INFERA_SIM_UNKNOWN_MODEL: { status: 404, type: 'NotFoundError' },
  INFERA_SIM_BODY_TOO_LARGE: { status: 413, type: 'RequestTooLargeError' },
  INFERA_SIM_QUEUE_FULL: { status: 429, type: 'TooManyRequestsError' },
  INFERA_SIM_CLOSED: { status: 503, type: 'ServiceUnavailableError' },
}

/** How a refusal reads on the wire: vLLM's error object, whose `code` is the status. */
export function errorAnswer(error: RequestRefusedError): {
  status: number
  body: object
  retryAfterSeconds: number | undefined
} {
  const { status, type } = forms[error.code]
  return {
    status,
    body: { error: { message: error.message, type, param: error.param, code: status } },
    retryAfterSeconds: error.retryable ? 1 : undefined,
  }
}
