import { describeKvEventTransport } from '../contracts/kv-event-transport.js'
import { OnDemandWorker, recordOf, startEvents, startPublisher } from '../support/zmq-pair.js'

describeKvEventTransport('zmq', async (source, ranks) => {
  const { events, clock } = startEvents({ bufferBytesMax: 65_536 })
  const first = await startPublisher(source)
  const transport = new OnDemandWorker(source, events, first)
  const worker = recordOf(first.announcement, ranks > 1 ? { dp_size: ranks } : {})
  return {
    transport,
    worker,
    kill: async () => {
      await transport.kill()
      // Time that passes before the loss of the connection is seen does not count.
      while (events.serves(worker)) {
        await new Promise((resolve) => setImmediate(resolve))
        clock.advance(1_000)
      }
    },
    dispose: async () => {
      await events.close()
      await transport.kill()
    },
  }
})
