import type { IncomingMessage, RequestListener } from 'node:http'
import type { TransportRequest, WorkerRequestHandler } from '../../src/index.js'

/** Answers HTTP as a handler says; the handler's signal is aborted when the client goes before the end. */
export function httpWorker(handler: WorkerRequestHandler): RequestListener {
  return (request, response) => {
    const controller = new AbortController()
    response.on('close', () => controller.abort(new Error('client gone')))
    const answerIt = async () => {
      const { status, headers, body } = await handler(await readRequest(request), {
        signal: controller.signal,
      })
      response.writeHead(status, headers)
      response.flushHeaders()
      for await (const chunk of body) {
        if (controller.signal.aborted) return
        if (!response.write(chunk))
          await new Promise((resolve) => response.once('drain', resolve).once('close', resolve))
      }
      response.end()
    }
    answerIt().catch(() => response.destroy())
  }
}

async function readRequest(request: IncomingMessage): Promise<TransportRequest> {
  const parts: Buffer[] = []
  for await (const chunk of request) parts.push(chunk as Buffer)
  const headers: Record<string, string> = {}
  for (const [name, value] of Object.entries(request.headers)) headers[name] = String(value)
  return {
    method: request.method === 'GET' ? 'GET' : 'POST',
    path: request.url ?? '',
    headers,
    body: Buffer.concat(parts),
  }
}
