import type { TransportRequest, TransportResponse } from '../../src/index.js'

export const utf8 = (text: string) => new TextEncoder().encode(text)

export async function* chunks(...parts: readonly (string | Uint8Array)[]): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield typeof part === 'string' ? utf8(part) : part
}

export async function bytesOf(response: TransportResponse): Promise<Buffer> {
  const parts: Uint8Array[] = []
  for await (const chunk of response.body) parts.push(chunk)
  return Buffer.concat(parts)
}

export async function textOf(response: TransportResponse): Promise<string> {
  return (await bytesOf(response)).toString('utf8')
}

export function answer(body: string, status = 200): TransportResponse {
  return { status, headers: { 'content-type': 'text/plain' }, body: chunks(body) }
}

export function post(body: string | Uint8Array, path = '/v1/chat/completions'): TransportRequest {
  return {
    method: 'POST',
    path,
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? utf8(body) : body,
  }
}
