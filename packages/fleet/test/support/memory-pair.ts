import {
  type KvEventSource,
  silentLogger,
  type TransportRequest,
  type TransportResponse,
  type WorkerRequestHandler,
} from '../../src/index.js'
import { KvSubscription } from '../../src/link/kv-subscription.js'
import { LinkLimits } from '../../src/link/limits.js'
import type { LinkClosed, TalkFrame } from '../../src/link/link-socket.js'
import { LinkSocket } from '../../src/link/link-socket.js'
import { MemoryLink } from '../../src/link/memory-link.js'
import { ServerConnection } from '../../src/link/server-connection.js'
import { WorkerConnection } from '../../src/link/worker-connection.js'
import { VirtualClock } from '../../src/virtual-clock.js'
import { answer } from './bodies.js'

/** A frame as it arrived at one end, in the order in which both ends heard. */
export interface HeardFrame {
  readonly at: 'server' | 'worker'
  readonly type: TalkFrame['type']
  readonly streamId: number
  /** Of data and parts of events; 0 for others. */
  readonly sizeBytes: number
}

export interface MemoryPairOptions {
  readonly handler?: WorkerRequestHandler
  readonly kvEvents?: KvEventSource
  readonly serverLimits?: Partial<LinkLimits>
  readonly workerLimits?: Partial<LinkLimits>
  readonly latencyMs?: number
  readonly bytesPerMs?: number
}

/** A welcomed server and its worker over a line in memory, whose time is the test's. */
export class MemoryPair {
  readonly clock = new VirtualClock()
  readonly link: MemoryLink
  readonly server: ServerConnection
  readonly worker: WorkerConnection
  readonly heard: HeardFrame[] = []
  readonly closed: LinkClosed[] = []
  readonly #serverLimits: LinkLimits
  /** Requests that have begun at the worker and not ended. */
  runningRequests = 0

  constructor(options: MemoryPairOptions = {}) {
    const { latencyMs = 1, bytesPerMs = 100_000 } = options
    const { clock } = this
    this.link = new MemoryLink({ clock, latencyMs, bytesPerMs })
    const serverLimits = LinkLimits.parse(options.serverLimits ?? {})
    const workerLimits = LinkLimits.parse(options.workerLimits ?? {})
    this.#serverLimits = serverLimits
    const shared = { clock, logger: silentLogger }
    const serverSocket: LinkSocket = new LinkSocket(
      this.link.server,
      {
        onFrame: (frame) => {
          this.#note('server', frame)
          this.server.accept(frame)
        },
        onClose: (closed) => {
          this.closed.push(closed)
          this.server.lose(closed.reason)
        },
      },
      { limits: serverLimits, ...shared },
    )
    const workerSocket: LinkSocket = new LinkSocket(
      this.link.client,
      {
        onFrame: (frame) => {
          this.#note('worker', frame)
          this.worker.accept(frame)
        },
        onClose: (closed) => this.worker.lose(closed.reason),
      },
      { limits: workerLimits, ...shared },
    )
    this.server = new ServerConnection(serverSocket, {
      workerId: 'w:1',
      hasKvEvents: options.kvEvents !== undefined,
      limits: serverLimits,
      onDrain: () => {},
      requestBodyBytesMax: workerLimits.requestBodyBytesMax,
      requestBodiesBytesMax: workerLimits.requestBodiesBytesMax,
    })
    this.worker = new WorkerConnection(workerSocket, {
      handler: options.handler ?? (async () => answer('ok')),
      kvEvents: options.kvEvents,
      limits: workerLimits,
      logger: silentLogger,
      onRequest: (change) => {
        this.runningRequests += change
      },
    })
    this.workerSocket = workerSocket
  }

  readonly workerSocket: LinkSocket

  async ask(request: TransportRequest, signal?: AbortSignal): Promise<TransportResponse> {
    return this.server.send(request, signal)
  }

  subscribe(): KvSubscription {
    const { kvWindowBytes, snapshotBytesMax, kvResubscribeDelayMs } = this.#serverLimits
    return new KvSubscription(this.server, {
      workerId: 'w:1',
      ranks: [0],
      windowBytes: kvWindowBytes,
      snapshotBytesMax,
      resubscribeDelayMs: kvResubscribeDelayMs,
      clock: this.clock,
      logger: silentLogger,
      signal: undefined,
    })
  }

  /** Moves time until something is true. @throws when it does not become true within 1000 s of the pair's time */
  async until(isTrue: () => boolean): Promise<void> {
    if (await this.clock.runUntil(isTrue, { withinMs: 1_000_000 })) return
    throw new Error(`not true after ${this.clock.now()} ms: ${isTrue}`)
  }

  /** What a promise gives, moving time until it does. */
  async whenDone<T>(promise: Promise<T>): Promise<T> {
    let isDone = false
    const settle = () => {
      isDone = true
    }
    promise.then(settle, settle)
    await this.until(() => isDone)
    return promise
  }

  /** Lets everything happen that happens by itself: nothing but pings is left to do. */
  async settle(): Promise<void> {
    await this.clock.advanceAsync(2_000)
  }

  #note(at: HeardFrame['at'], frame: TalkFrame): void {
    const streamId = 'streamId' in frame ? frame.streamId : 0
    const sizeBytes = 'bytes' in frame && typeof frame.bytes !== 'number' ? frame.bytes.byteLength : 0
    this.heard.push({ at, type: frame.type, streamId, sizeBytes })
  }
}
