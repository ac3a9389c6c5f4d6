import {
  type EmbeddedDiscovery,
  type EmbeddedRegistration,
  type KvEventMessage,
  type KvEventSource,
  type KvEventTransport,
  type RequestTransport,
  TransportError,
  type TransportRequest,
  type TransportResponse,
  type WorkerRecord,
  type WorkerRequestHandler,
} from '@infera/fleet'

export interface PortWorker {
  readonly record: WorkerRecord
  readonly handler: WorkerRequestHandler
  readonly kvSource: KvEventSource
}

/** A worker's place among those that are reached by plain calls. */
export interface PortMember {
  /** Out of rotation. */
  drain(): Promise<void>
  /** The same, then gone once nothing runs. */
  close(): Promise<void>
  /** Gone now. A `silent` end leaves the entry where it is until its lease runs out. */
  leave(how: 'leaseLost' | 'silent'): void
}

/** The ends of a process break what it was doing. */
interface Member extends PortWorker {
  readonly registration: EmbeddedRegistration
  readonly gone: AbortController
  running: number
  onIdle: (() => void) | undefined
}

/**
 * Workers that the router reaches by plain calls: transports and events without a network, over the registry of the process.
 * What can go wrong between the two is left to the faults at the ports.
 */
export class PortFleet {
  readonly #discovery: EmbeddedDiscovery
  readonly #leaseMs: number
  readonly #after: (ms: number, callback: () => void) => void
  readonly #members = new Map<string, Member>()
  readonly requests: RequestTransport
  readonly kvEvents: KvEventTransport

  /** @param options.leaseMs after which the entry of a worker that fell silent is dropped */
  constructor(options: {
    discovery: EmbeddedDiscovery
    leaseMs: number
    after: (ms: number, callback: () => void) => void
  }) {
    this.#discovery = options.discovery
    this.#leaseMs = options.leaseMs
    this.#after = options.after
    this.requests = {
      kind: 'link',
      send: (worker, request, { signal } = {}) => this.#send(worker, request, signal),
      close: async () => {},
    }
    this.kvEvents = {
      kind: 'ports',
      serves: () => true,
      subscribe: (worker, { signal } = {}) => this.#events(worker, signal),
    }
  }

  join(worker: PortWorker): PortMember {
    const workerId = worker.record.worker_id
    const registration = this.#discovery.registerNow({ kind: 'worker', record: worker.record })
    const member: Member = {
      ...worker,
      registration,
      gone: new AbortController(),
      running: 0,
      onIdle: undefined,
    }
    this.#members.set(workerId, member)
    const end = () => {
      member.gone.abort(broken(workerId, 'the worker is gone'))
      if (this.#members.get(workerId) === member) this.#members.delete(workerId)
    }
    return {
      drain: () => registration.drain(),
      close: async () => {
        await registration.drain()
        if (member.running > 0) {
          await new Promise<void>((resolve) => {
            member.onIdle = resolve
          })
        }
        await registration.deregister()
        end()
      },
      leave: (how) => {
        end()
        if (how === 'leaseLost') registration.expire()
        else this.#after(this.#leaseMs, () => registration.expire())
      },
    }
  }

  async #send(
    { worker_id: workerId }: WorkerRecord,
    request: TransportRequest,
    signal: AbortSignal | undefined,
  ): Promise<TransportResponse> {
    signal?.throwIfAborted()
    const member = this.#members.get(workerId)
    if (!member)
      throw new TransportError('INFERA_FLEET_UNREACHABLE', workerId, `worker '${workerId}' is not there`)
    const own = new AbortController()
    const onAbort = () => own.abort(signal?.reason)
    const onGone = () => own.abort(member.gone.signal.reason)
    signal?.addEventListener('abort', onAbort, { once: true })
    member.gone.signal.addEventListener('abort', onGone, { once: true })
    member.running += 1
    let isOver = false
    const over = () => {
      if (isOver) return
      isOver = true
      signal?.removeEventListener('abort', onAbort)
      member.gone.signal.removeEventListener('abort', onGone)
      member.running -= 1
      if (member.running === 0) member.onIdle?.()
    }
    own.signal.addEventListener('abort', over, { once: true })
    try {
      const response = await orAborted(member.handler(request, { signal: own.signal }), own.signal)
      return { ...response, body: portBody(response.body, own, over) }
    } catch (error) {
      over()
      if (error instanceof TransportError || own.signal.aborted) throw error
      const message = `worker '${workerId}' failed: ${error instanceof Error ? error.message : String(error)}`
      throw new TransportError('INFERA_FLEET_WORKER_FAILED', workerId, message)
    }
  }

  async *#events(worker: WorkerRecord, signal: AbortSignal | undefined): AsyncGenerator<KvEventMessage> {
    const member = this.#members.get(worker.worker_id)
    if (!member || signal?.aborted) return
    let queue: KvEventMessage[] = []
    let wake = () => {}
    const onAbort = () => wake()
    signal?.addEventListener('abort', onAbort, { once: true })
    member.gone.signal.addEventListener('abort', onAbort, { once: true })
    const unsubscribe = member.kvSource.subscribe((batch) => {
      queue.push({ type: 'batch', ...batch })
      wake()
    })
    try {
      const { sequence, payloads } = member.kvSource.snapshot(0)
      yield { type: 'snapshot', rank: 0, sequence, payloads: [...payloads] }
      while (!signal?.aborted && !member.gone.signal.aborted) {
        const ready = queue
        queue = []
        for (const message of ready) {
          if (signal?.aborted) return
          yield message
        }
        if (queue.length > 0) continue
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    } finally {
      unsubscribe()
      signal?.removeEventListener('abort', onAbort)
      member.gone.signal.removeEventListener('abort', onAbort)
    }
  }
}

async function* portBody(
  body: AsyncIterable<Uint8Array>,
  own: AbortController,
  over: () => void,
): AsyncGenerator<Uint8Array> {
  const source = body[Symbol.asyncIterator]()
  let isEnded = false
  try {
    for (;;) {
      const result = await orAborted(source.next(), own.signal)
      if (result.done) {
        isEnded = true
        return
      }
      yield result.value
    }
  } finally {
    over()
    if (!isEnded) own.abort(new Error('the reader left'))
  }
}

function broken(workerId: string, why: string): TransportError {
  return new TransportError('INFERA_FLEET_BROKEN', workerId, `worker '${workerId}' broke off: ${why}`)
}

/** A handler that heeds no signal must not hold who waits for it. */
function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) {
      work.catch(() => {}) // its failure has no reader any more
      return onAbort()
    }
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}
