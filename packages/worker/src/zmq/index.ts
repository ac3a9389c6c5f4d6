import { ZmqKvPublisher, type ZmqKvPublisherOptions } from '@infera/fleet/zmq'
import type { WorkerPlane } from '../worker-plane.js'

/** KV events over ZMQ, as vLLM publishes them, with replay and snapshots for routers of ours. */
export function zmqKvEventPlane(options: ZmqKvPublisherOptions): WorkerPlane {
  const publisher = new ZmqKvPublisher(options)
  return {
    name: 'zmq kv events',
    async ready() {
      const { ext, ...parts } = await publisher.listen()
      return { ...parts, ext: { ...ext, settings: { kv_event_transport: 'zmq' } } }
    },
    close: () => publisher.close(),
  }
}
