import { afterAll, beforeAll, describe } from 'vitest'
import type { KvEventTransport, WorkerRecord } from '../../src/index.js'
import { NatsKvEvents, NatsKvRelay } from '../../src/nats/index.js'
import { describeKvEventTransport } from '../contracts/kv-event-transport.js'
import { quick } from '../support/nats-pair.js'
import { NatsServer, natsMissing } from '../support/nats-server.js'
import { workerRecord } from '../support/records.js'

describe.skipIf(natsMissing)('against a broker', () => {
  let server: NatsServer
  beforeAll(async () => {
    // One of the payloads has three megabytes.
    server = await NatsServer.start({ jetStream: true, maxPayloadBytes: 8 * 1024 * 1024 })
  })
  afterAll(() => server[Symbol.asyncDispose]())

  describeKvEventTransport('nats', async (source, ranks) => {
    const { url } = server
    const intervals = { ...quick, retryIntervalMs: 20, jetStreamTimeoutMs: 2_000 }
    const startRelay = () =>
      new NatsKvRelay({ url, workerId: 'w:1', source, resyncIntervalMs: 1, ...intervals })
    let relay: NatsKvRelay | undefined = startRelay()
    await relay.ready()
    const events = new NatsKvEvents({
      ...{ url, bufferBytesMax: 65_536, probeIntervalMs: 20, lostAfterMs: 50, heartbeatIntervalMs: 200 },
      ...intervals,
    })
    let isKilled = false
    // A relay publishes whether or not anybody reads. The contract speaks of workers that only do so for their readers, so
    // that this one leaves with its last reader and comes with its first.
    const transport: KvEventTransport = {
      kind: events.kind,
      serves: (worker) => events.serves(worker),
      subscribe: (worker, options) => whileRead(events.subscribe(worker, options)),
    }
    let readers = 0
    async function* whileRead<M>(messages: AsyncIterable<M>): AsyncGenerator<M> {
      readers += 1
      if (!isKilled) relay ??= startRelay()
      try {
        yield* messages
      } finally {
        readers -= 1
        if (readers === 0) {
          await relay?.close()
          relay = undefined
        }
      }
    }
    const worker: WorkerRecord = workerRecord('w:1', ranks > 1 ? { dp_size: ranks } : {})
    return {
      transport,
      worker,
      kill: async () => {
        isKilled = true
        await relay?.destroy()
        relay = undefined
      },
      dispose: async () => {
        isKilled = true
        await events.close()
        await relay?.close()
      },
    }
  })
})
