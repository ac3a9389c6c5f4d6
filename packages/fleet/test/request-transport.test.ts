import { HttpTransport } from '../src/index.js'
import { describeRequestTransport } from './contracts/request-transport.js'
import { httpWorker } from './support/http-worker.js'
import { startServer, startWorker } from './support/link-pair.js'
import { workerRecord } from './support/records.js'
import { listen } from './support/servers.js'

describeRequestTransport('link', async (handler) => {
  const server = await startServer()
  const worker = await startWorker({ join: server.url, handler })
  return {
    transport: server.link.requests,
    worker: worker.record,
    kill: async () => worker.destroy(),
    dispose: async () => {
      worker.destroy()
      await server[Symbol.asyncDispose]()
    },
  }
})

describeRequestTransport('http', async (handler) => {
  const listening = await listen(httpWorker(handler))
  const transport = new HttpTransport()
  return {
    transport,
    worker: workerRecord(`127.0.0.1:${listening.port}`, {
      url: `http://127.0.0.1:${listening.port}`,
      request_transport: 'http',
    }),
    kill: () => listening.stop(),
    dispose: async () => {
      await listening.stop()
      await transport.close()
    },
  }
})
