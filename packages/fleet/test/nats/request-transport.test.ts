import { afterAll, beforeAll, describe } from 'vitest'
import { describeRequestTransport } from '../contracts/request-transport.js'
import { startNatsPair } from '../support/nats-pair.js'
import { NatsServer, natsMissing } from '../support/nats-server.js'

describe.skipIf(natsMissing)('against a broker', () => {
  let plain: NatsServer
  let streaming: NatsServer
  beforeAll(async () => {
    plain = await NatsServer.start()
    streaming = await NatsServer.start({ jetStream: true })
  })
  afterAll(async () => {
    await plain[Symbol.asyncDispose]()
    await streaming[Symbol.asyncDispose]()
  })

  for (const [name, broker, maxPending] of [
    ['nats core', () => plain, 0],
    ['nats jetstream', () => streaming, 1_000],
  ] as const) {
    describeRequestTransport(name, async (handler) => {
      const pair = await startNatsPair(broker().url, {
        worker: { handler, maxPending },
        transport: { maxPending, readingMaxAgeMs: 1 },
      })
      return {
        transport: pair.transport,
        worker: pair.record,
        kill: () => pair.worker.destroy(),
        dispose: async () => pair[Symbol.asyncDispose](),
      }
    })
  }
})
