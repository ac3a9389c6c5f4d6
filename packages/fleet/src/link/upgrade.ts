import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'

/** The path of a request without its query. */
export function pathOf(request: IncomingMessage): string {
  return (request.url ?? '').split(/[?#]/, 1)[0] ?? ''
}

/** The bearer token of a request; empty where there is none. */
export function bearerToken(request: IncomingMessage): string {
  const [, given = ''] = /^bearer +(.*)$/i.exec(request.headers.authorization ?? '') ?? []
  return given
}

/** Answers an upgrade that is not taken, and closes its socket. */
export function rejectUpgrade(socket: Duplex, status: string, headers: readonly string[] = []): void {
  // The client may be gone already; there is nobody to tell then.
  socket.on('error', () => socket.destroy())
  const head = [`HTTP/1.1 ${status}`, 'connection: close', 'content-length: 0', ...headers]
  socket.end(`${head.join('\r\n')}\r\n\r\n`, () => socket.destroy())
}
