import {
  EmbeddedDiscovery,
  LinkServer,
  type LinkServerOptions,
  LinkWorker,
  type LinkWorkerOptions,
} from '../../src/index.js'
import { answer } from './bodies.js'
import { serverRecord, workerRecord } from './records.js'
import { type Listening, listen } from './servers.js'

export interface RunningServer extends AsyncDisposable {
  readonly link: LinkServer
  readonly discovery: EmbeddedDiscovery
  readonly listening: Listening
  readonly url: string
}

/** A link server that listens on loopback; disposed, it cuts everything. */
export async function startServer(
  options: Partial<LinkServerOptions> = {},
  port = 0,
): Promise<RunningServer> {
  const listening = await listen((_request, response) => response.writeHead(404).end(), port)
  const discovery = new EmbeddedDiscovery()
  const link = new LinkServer({ discovery, serverRecord: serverRecord('s'), ...options })
  link.attach(listening.server)
  return {
    link,
    discovery,
    listening,
    url: `ws://127.0.0.1:${listening.port}`,
    async [Symbol.asyncDispose]() {
      link.destroy()
      await listening.stop()
    },
  }
}

/** A worker that has not joined anything yet. It comes back fast when it is cut off. */
export function newWorker(options: Partial<LinkWorkerOptions> & Pick<LinkWorkerOptions, 'join'>): LinkWorker {
  return new LinkWorker({
    record: workerRecord('w:1'),
    handler: async () => answer('ok'),
    backoff: { firstMs: 5, maxMs: 20 },
    ...options,
  })
}

/** A worker that was let in everywhere. */
export async function startWorker(...args: Parameters<typeof newWorker>): Promise<LinkWorker> {
  const worker = newWorker(...args)
  worker.start()
  await worker.joined
  return worker
}
