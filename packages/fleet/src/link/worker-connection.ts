import { LinkProtocolError } from '../errors.js'
import type { KvEventSource } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { TransportRequest, WorkerRequestHandler } from '../ports/request-transport.js'
import { type LinkFrame, ResponseHead } from './frames.js'
import { KvFeed } from './kv-feed.js'
import { type KvWhole, kvFrames, snapshotBytes } from './kv-parts.js'
import { type LinkLimits, pieceBytes } from './limits.js'
import type { LinkSocket, TalkFrame } from './link-socket.js'
import { RequestIntake } from './request-intake.js'

export interface WorkerConnectionOptions {
  readonly handler: WorkerRequestHandler
  readonly kvEvents: KvEventSource | undefined
  readonly limits: LinkLimits
  readonly logger: Logger
  /** Told before a request reaches the handler, and when it has ended in every respect. */
  readonly onRequest: (change: 1 | -1) => void
}

interface Feed {
  close(): void
}

/** One welcomed connection, as the worker holds it: answers requests and event subscriptions. */
export class WorkerConnection {
  readonly #socket: LinkSocket
  readonly #options: WorkerConnectionOptions
  readonly #intake: RequestIntake
  readonly #running = new Map<number, AbortController>()
  readonly #feeds = new Map<number, Feed>()

  constructor(socket: LinkSocket, options: WorkerConnectionOptions) {
    this.#socket = socket
    this.#options = options
    this.#intake = new RequestIntake(options.limits)
  }

  /** @throws LinkProtocolError for a frame that a server may not send */
  accept(frame: TalkFrame): void {
    switch (frame.type) {
      case 'request':
        this.#onRequest(frame)
        return
      case 'data':
        this.#onData(frame.streamId, frame.bytes)
        return
      case 'end': {
        const request = this.#intake.complete(frame.streamId)
        if (request) void this.#serve(frame.streamId, request)
        return
      }
      case 'cancel':
        this.#onCancel(frame.streamId, new Error('cancelled by the server'))
        return
      case 'kvSubscribe':
        this.#onKvSubscribe(frame.streamId, frame.head.rank)
        return
      default:
        throw new LinkProtocolError(`${frame.type} frame where a server may not send it`)
    }
  }

  /** The connection is gone: every handler's signal is aborted. */
  lose(reason: string): void {
    for (const streamId of [...this.#running.keys(), ...this.#feeds.keys()]) {
      this.#onCancel(streamId, new Error(`link lost: ${reason}`))
    }
  }

  #onRequest(frame: Extract<LinkFrame, { type: 'request' }>): void {
    const { streamId, head } = frame
    this.#checkNew(streamId)
    if (this.#hasNoRoom()) {
      this.#refuseStream(streamId, 'tooManyStreams', 'too many streams are open')
      return
    }
    this.#intake.begin(streamId, head)
  }

  #onData(streamId: number, bytes: Uint8Array): void {
    const fault = this.#intake.add(streamId, bytes)
    if (!fault) return
    const { requestBodyBytesMax, requestBodiesBytesMax } = this.#options.limits
    const message =
      fault === 'requestTooLarge'
        ? `request body exceeds ${requestBodyBytesMax} bytes; raise the worker's limits.requestBodyBytesMax`
        : `request bodies on their way exceed ${requestBodiesBytesMax} bytes; raise the worker's limits.requestBodiesBytesMax`
    this.#refuseStream(streamId, fault, message)
  }

  #onCancel(streamId: number, reason: Error): void {
    this.#intake.drop(streamId)
    this.#running.get(streamId)?.abort(reason)
    this.#feeds.get(streamId)?.close()
  }

  async #serve(streamId: number, request: TransportRequest): Promise<void> {
    const { handler, onRequest, logger } = this.#options
    const controller = new AbortController()
    const { signal } = controller
    this.#running.set(streamId, controller)
    onRequest(1)
    try {
      const { status, headers, body } = await handler(request, { signal })
      // Checked here: a head that the server cannot read would cost the whole connection.
      const head = ResponseHead.parse({ status, headers })
      if (!signal.aborted) this.#socket.send({ type: 'response', streamId, head })
      await this.#sendBody(streamId, body, signal)
      if (!signal.aborted) this.#socket.send({ type: 'end', streamId })
    } catch (error) {
      // After a cancel nobody listens, and a handler that throws because of it did what it was told.
      if (signal.aborted) return
      const message = error instanceof Error ? error.message : String(error)
      logger.warn(
        { streamId, error: error instanceof Error ? error.name : 'unknown' },
        'request handler failed',
      )
      this.#refuseStream(streamId, 'handlerFailed', message.slice(0, 1024))
    } finally {
      this.#running.delete(streamId)
      onRequest(-1)
    }
  }

  async #sendBody(streamId: number, body: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    const size = pieceBytes(this.#options.limits)
    const iterator = body[Symbol.asyncIterator]()
    for (;;) {
      const step = await nextUnlessAborted(iterator, signal)
      if (!step) {
        // Not awaited: a generator that is stuck in its own wait would hold us too. Its failure has no reader any more.
        iterator.return?.().then(undefined, () => {})
        return
      }
      if (step.done) return
      const chunk = step.value
      for (let offset = 0; offset < chunk.byteLength && !signal.aborted; offset += size) {
        const bytes = chunk.subarray(offset, offset + size)
        await this.#socket.sendPaced(() => (signal.aborted ? undefined : { type: 'data', streamId, bytes }))
      }
    }
  }

  #onKvSubscribe(streamId: number, rank: number): void {
    this.#checkNew(streamId)
    const source = this.#options.kvEvents
    if (!source) {
      this.#refuseStream(streamId, 'noKvEvents', 'this worker has no kv events')
      return
    }
    if (!source.ranks.includes(rank)) {
      this.#refuseStream(streamId, 'unknownRank', `no rank ${rank}`)
      return
    }
    if (this.#hasNoRoom()) {
      this.#refuseStream(streamId, 'tooManyStreams', 'too many streams are open')
      return
    }
    void this.#feed(streamId, source, rank)
  }

  async #feed(streamId: number, source: KvEventSource, rank: number): Promise<void> {
    const { limits, logger } = this.#options
    let isClosed = false
    let wake = () => {}
    const feed = new KvFeed(source, rank, { bufferBytesMax: limits.kvBufferBytesMax, onReady: () => wake() })
    this.#feeds.set(streamId, {
      close: () => {
        isClosed = true
        wake()
      },
    })
    try {
      while (!isClosed) {
        const whole = feed.take()
        if (whole) {
          this.#check(whole)
          for (const frame of kvFrames(streamId, whole, pieceBytes(limits))) {
            await this.#socket.sendPaced(() => (isClosed ? undefined : frame))
            if (isClosed) return
          }
        } else {
          await new Promise<void>((resolve) => {
            wake = resolve
          })
        }
      }
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error)
      logger.warn({ rank, error: message }, 'kv events cannot be told')
      if (!isClosed) this.#refuseStream(streamId, 'kvFailed', message.slice(0, 1024))
    } finally {
      feed.close()
      this.#feeds.delete(streamId)
    }
  }

  #check(whole: KvWhole): void {
    if (!Number.isSafeInteger(whole.sequence) || whole.sequence < (whole.type === 'batch' ? 0 : -1)) {
      throw new LinkProtocolError(`kv ${whole.type} with sequence number ${whole.sequence}`)
    }
    const { snapshotBytesMax } = this.#options.limits
    if (whole.type === 'snapshot' && snapshotBytes(whole.payloads) > snapshotBytesMax) {
      throw new LinkProtocolError(
        `kv snapshot exceeds ${snapshotBytesMax} bytes; raise limits.snapshotBytesMax on both ends`,
      )
    }
  }

  #checkNew(streamId: number): void {
    if (this.#intake.has(streamId) || this.#running.has(streamId) || this.#feeds.has(streamId)) {
      throw new LinkProtocolError(`stream ${streamId} is in use`)
    }
  }

  #hasNoRoom(): boolean {
    return this.#intake.size + this.#running.size + this.#feeds.size >= this.#options.limits.streamsMax
  }

  #refuseStream(streamId: number, code: string, message: string): void {
    this.#socket.send({ type: 'error', streamId, head: { code, message } })
  }
}

/** The next step, or undefined as soon as the signal aborts, whether or not the iterator heeds it. */
function nextUnlessAborted<T>(
  iterator: AsyncIterator<T>,
  signal: AbortSignal,
): Promise<IteratorResult<T> | undefined> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return resolve(undefined)
    const onAbort = () => resolve(undefined)
    signal.addEventListener('abort', onAbort, { once: true })
    const settled = () => signal.removeEventListener('abort', onAbort)
    iterator.next().then(
      (step) => {
        settled()
        resolve(step)
      },
      (error: unknown) => {
        settled()
        reject(error)
      },
    )
  })
}
