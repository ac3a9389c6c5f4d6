import type { TransportRequest } from '@infera/fleet'
import { hasReservedKeys, withoutReservedKeys } from '../request/reserved-keys.js'
import type { DispatchRequest } from '../request/route-request.js'

/** Client headers that reach the worker. Authorization and cookies are the client's business with us, and stay here. */
const passedOn = ['traceparent', 'tracestate']

/** What every worker that is tried for this request is sent, but for the pinned rank. */
export function workerRequest(request: DispatchRequest, requestId: string): TransportRequest {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    // Bytes are passed on as they come, and not every client could decode what the worker might choose.
    'accept-encoding': 'identity',
    'x-request-id': requestId,
    'x-infera-request-id': requestId,
  }
  for (const name of passedOn) {
    const value = request.headers?.[name]
    if (typeof value === 'string' && value !== '') headers[name] = value
  }
  return { method: 'POST', path: request.path, headers, body: bodyBytes(request) }
}

/** @param rank pinned for engines that serve several ranks behind one endpoint; null pins none */
export function withRank(request: TransportRequest, rank: number | null): TransportRequest {
  if (rank === null) return request
  return { ...request, headers: { ...request.headers, 'x-data-parallel-rank': String(rank) } }
}

function bodyBytes({ body, rawBody }: DispatchRequest): Uint8Array {
  if (rawBody && !hasReservedKeys(body)) return rawBody
  const text = rawBody
    ? Buffer.from(rawBody.buffer, rawBody.byteOffset, rawBody.length).toString('utf8')
    : JSON.stringify(body)
  return Buffer.from(hasReservedKeys(body) ? withoutReservedKeys(text) : text, 'utf8')
}
