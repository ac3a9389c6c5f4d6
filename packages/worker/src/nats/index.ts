import { NatsKvRelay, type NatsKvRelayOptions, NatsWorker, type NatsWorkerOptions } from '@infera/fleet/nats'
import type { WorkerPlane } from '../worker-plane.js'

/** Requests over NATS. The worker drains it; whoever gives options leaves `stop` to it. */
export function natsRequestPlane(options: NatsWorkerOptions): WorkerPlane {
  const worker = new NatsWorker(options)
  return {
    name: 'nats requests',
    async ready({ signal }) {
      await worker.ready({ signal })
      const { recordExt } = worker
      const settings = { nats_req_max_pending: options.maxPending ?? 0 }
      return { request_transport: 'nats', ext: { ...recordExt, settings } }
    },
    drain: ({ timeoutMs }) => worker.stop({ drain: true, timeoutMs }),
    close: () => worker.stop({ drain: false, timeoutMs: 0 }),
    // `stop` under way would be waited for.
    destroy: () => worker.destroy(),
  }
}

/** KV events over NATS, and the bucket of views where a codec is given. */
export function natsKvEventPlane(options: NatsKvRelayOptions): WorkerPlane {
  const relay = new NatsKvRelay(options)
  return {
    name: 'nats kv events',
    async ready({ signal }) {
      await untilAborted(relay.ready(), signal)
      return { ext: { kv_events: 'nats', settings: { kv_event_transport: 'nats' } } }
    },
    deregister: () => relay.deregister(),
    close: () => relay.close(),
  }
}

function untilAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}

export { type KvViewCodecOptions, kvViewCodec } from './kv-view-codec.js'
