import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'

export interface Listening {
  readonly server: Server
  readonly port: number
  /** Sockets open now. */
  readonly sockets: ReadonlySet<Socket>
  /** Cuts every connection and stops listening. */
  stop(): Promise<void>
}

/** An HTTP server on a loopback port, a free one unless told. */
export async function listen(listener?: RequestListener, port = 0): Promise<Listening> {
  const server = createServer(listener)
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    server,
    port: (server.address() as AddressInfo).port,
    sockets,
    async stop() {
      const closed = new Promise<void>((resolve) => {
        server.close(() => resolve())
      })
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}
