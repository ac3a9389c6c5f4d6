import type { KvEventMessage, KvEventSource, KvEventTransport, WorkerRecord } from '../../src/index.js'
import { VirtualClock } from '../../src/virtual-clock.js'
import {
  type ZmqKvAnnouncement,
  ZmqKvEvents,
  type ZmqKvEventsOptions,
  ZmqKvPublisher,
  type ZmqKvPublisherOptions,
} from '../../src/zmq/index.js'
import { workerRecord } from './records.js'

/** Pauses of sockets that no test waits for in vain. */
export const quick = { reconnectMs: 5, reconnectMaxMs: 20 }

/** A reader's side whose time stands still: nothing is lost, checked or given up before the test says so. */
export function startEvents(options: ZmqKvEventsOptions = {}) {
  const clock = new VirtualClock()
  const events = new ZmqKvEvents({ ...quick, clock, ...options })
  return { events, clock }
}

/** A publisher on ports of its own. */
export async function startPublisher(source: KvEventSource, options: Partial<ZmqKvPublisherOptions> = {}) {
  const publisher = new ZmqKvPublisher({ ...quick, source, ...options })
  return { publisher, announcement: await publisher.listen() }
}

/** A worker's record that says where its events are. */
export function recordOf(
  announcement: { readonly kv_events_endpoint: string; readonly ext?: Record<string, unknown> },
  more: Record<string, unknown> = {},
): WorkerRecord {
  return workerRecord('w:1', { ...announcement, ...more })
}

/**
 * The contract speaks of workers that publish only for their readers; one on ZMQ publishes whether or not anybody reads. So it
 * leaves here with its last reader and comes back, to the same ports, with its first.
 */
export class OnDemandWorker implements KvEventTransport {
  readonly kind = 'zmq'
  readonly #source: KvEventSource
  readonly #events: ZmqKvEvents
  readonly #announcement: ZmqKvAnnouncement
  #publisher: ZmqKvPublisher | undefined
  #readers = 0
  #isKilled = false

  constructor(
    source: KvEventSource,
    events: ZmqKvEvents,
    first: { readonly publisher: ZmqKvPublisher; readonly announcement: ZmqKvAnnouncement },
  ) {
    this.#source = source
    this.#events = events
    this.#publisher = first.publisher
    this.#announcement = first.announcement
  }

  serves(worker: WorkerRecord): boolean {
    return this.#events.serves(worker)
  }

  async *subscribe(
    worker: WorkerRecord,
    options: { signal?: AbortSignal } = {},
  ): AsyncGenerator<KvEventMessage> {
    this.#readers += 1
    if (!this.#publisher && !this.#isKilled) {
      this.#publisher = new ZmqKvPublisher({
        ...quick,
        source: this.#source,
        bind: this.#announcement.kv_events_endpoint,
        replayBind: this.#announcement.ext.kv_replay_endpoint,
      })
      void this.#publisher.listen()
    }
    try {
      yield* this.#events.subscribe(worker, options)
    } finally {
      this.#readers -= 1
      if (this.#readers === 0) await this.#leave()
    }
  }

  kill(): Promise<void> {
    this.#isKilled = true
    return this.#leave()
  }

  async #leave(): Promise<void> {
    const publisher = this.#publisher
    this.#publisher = undefined
    await publisher?.close()
  }
}
