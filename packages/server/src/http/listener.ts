import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { ServerError } from '../errors.js'

/** Idle keep-alive, above the 60 s that load balancers commonly keep a connection for. */
const keepAliveTimeoutMs = 75_000
/** Time a client has for its request head. */
const headersTimeoutMs = 60_000

/** An HTTP server with timeouts that suit long bodies and long answers. */
export function createListener(onRequest: RequestListener): Server {
  const server = createServer(
    { keepAliveTimeout: keepAliveTimeoutMs, headersTimeout: headersTimeoutMs },
    onRequest,
  )
  server.requestTimeout = 0 // a 128 MiB body over a slow line takes as long as it takes
  return server
}

/**
 * Listens and resolves with the base URL.
 * @throws ServerError `INFERA_SERVER_LISTEN` saying which flag to change
 */
export function listen(server: Server, host: string, port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException) => {
      const why =
        error.code === 'EADDRINUSE'
          ? `port ${port} on ${host} is in use; choose another with --port, or --port 0 for any free one`
          : error.code === 'EACCES'
            ? `no permission to listen on port ${port}; choose one above 1023 with --port`
            : `cannot listen on ${host}:${port}: ${error.message}`
      reject(new ServerError('INFERA_SERVER_LISTEN', why, { cause: error }))
    }
    server.once('error', onError)
    server.listen(port, host, () => {
      server.removeListener('error', onError)
      resolve(baseUrl(server.address() as AddressInfo))
    })
  })
}

function baseUrl(address: AddressInfo): string {
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address
  return `http://${host}:${address.port}`
}

/** Stops listening and resolves when every connection is gone; idle ones are closed at once, all after the grace. */
export function stopListening(server: Server, graceMs: number): Promise<void> {
  if (!server.listening) return Promise.resolve()
  return new Promise((resolve) => {
    const timer = setTimeout(() => server.closeAllConnections(), graceMs)
    server.close(() => {
      clearTimeout(timer)
      resolve()
    })
    server.closeIdleConnections()
  })
}
