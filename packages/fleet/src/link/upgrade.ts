import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'

/** The path of a request without its query. */
export function pathOf(request: IncomingMessage): string {
  return (request.url ?? '').split(/[?#]/, 1)[0] ?? ''
}

/** Whether the request carries this bearer token. Takes the same time for every wrong one. */
export function carriesToken(request: IncomingMessage, token: string): boolean {
  const [, given = ''] = /^bearer +(.*)$/i.exec(request.headers.authorization ?? '') ?? []
  // Digests have one length, which the comparison needs.
  return timingSafeEqual(digest(given), digest(token))
}

/** Answers an upgrade that is not taken, and closes its socket. */
export function rejectUpgrade(socket: Duplex, status: string, headers: readonly string[] = []): void {
  // The client may be gone already; there is nobody to tell then.
  socket.on('error', () => socket.destroy())
  const head = [`HTTP/1.1 ${status}`, 'connection: close', 'content-length: 0', ...headers]
  socket.end(`${head.join('\r\n')}\r\n\r\n`, () => socket.destroy())
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
