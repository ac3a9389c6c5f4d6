/** An answer of the API server that is no success, or an ERROR event of a watch. Never leaves this folder. */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  constructor(
    readonly status: number,
    message: string,
    /** What `Retry-After` asked for, ms. */
    readonly retryAfterMs?: number,
  ) {
    super(message)
  }
}

/** The version that a list or watch began from is no longer known: read everything again. */
export function isExpired(error: unknown): boolean {
  return error instanceof ApiError && error.status === 410
}

/** Bytes that are no watch or list, or exceed a bound. */
export class ApiFormatError extends Error {
  override readonly name = 'ApiFormatError'
}

const advice: Readonly<Record<number, string>> = {
  401: 'the token is not accepted: check the ServiceAccount, and that the token is read from its file each time',
  403: 'its ServiceAccount needs a Role with pods: get, list, watch, patch in that namespace',
  404: 'check the namespace, and that POD_NAME is metadata.name of this Pod',
}

/** Why the API server could not be used, with what to change where the answer says it. Holds no token. */
export function explainApiError(error: unknown): string {
  if (error instanceof ApiError && advice[error.status]) return `${error.message}; ${advice[error.status]}`
  if (!(error instanceof Error)) return String(error)
  const code = 'code' in error ? ` (${String(error.code)})` : ''
  return `${error.message || error.name}${code}`
}
