import { LinkProtocolError } from '../errors.js'
import type { KvEventSource } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import type { TransportRequest, WorkerRequestHandler } from '../ports/request-transport.js'
import { AbortableIterator } from './abortable-iterator.js'
import { type KvSubscribe, type LinkFrame, ResponseHead } from './frames.js'
import { KvFeed } from './kv-feed.js'
import { type KvOutgoing, kvFrames } from './kv-parts.js'
import { frameCostBytes, type LinkLimits, pieceBytesMax } from './limits.js'
import type { LinkSocket, TalkFrame } from './link-socket.js'
import { RequestIntake } from './request-intake.js'
import { SendCredit } from './send-credit.js'

export interface WorkerConnectionOptions {
  readonly handler: WorkerRequestHandler
  readonly kvEvents: KvEventSource | undefined
  readonly limits: LinkLimits
  readonly logger: Logger
  /** Told when a request begins to arrive, and when it has ended in every respect. */
  readonly onRequest: (change: 1 | -1) => void
}

/** A request that arrives or is answered, or an event subscription. */
interface OpenStream {
  readonly credit: SendCredit
  /** The server does not want it any more, or is gone. */
  readonly end: (reason: Error) => void
}

/** One welcomed connection, as the worker holds it: answers requests and event subscriptions. */
export class WorkerConnection {
  readonly #socket: LinkSocket
  readonly #options: WorkerConnectionOptions
  readonly #intake: RequestIntake
  readonly #streams = new Map<number, OpenStream>()

  constructor(socket: LinkSocket, options: WorkerConnectionOptions) {
    this.#socket = socket
    this.#options = options
    const { requestBodyBytesMax, requestBodiesBytesMax } = options.limits
    this.#intake = new RequestIntake({
      requestBodyBytesMax,
      requestBodiesBytesMax,
      onFreed: (bytes) => this.#socket.send({ type: 'credit', streamId: 0, bytes }),
    })
  }

  /** @throws LinkProtocolError for a frame that a server may not send */
  accept(frame: TalkFrame): void {
    switch (frame.type) {
      case 'request':
        this.#onRequest(frame)
        return
      case 'data':
        this.#intake.add(frame.streamId, frame.bytes)
        return
      case 'credit':
        if (frame.streamId === 0) throw new LinkProtocolError('credit frame of a server on stream 0')
        this.#streams.get(frame.streamId)?.credit.add(frame.bytes)
        return
      case 'end':
        this.#onEnd(frame.streamId)
        return
      case 'cancel':
        this.#end(frame.streamId, new Error('cancelled by the server'))
        return
      case 'kvSubscribe':
        this.#onKvSubscribe(frame.streamId, frame.head)
        return
      default:
        throw new LinkProtocolError(`${frame.type} frame where a server may not send it`)
    }
  }

  /** The connection is gone: every handler's signal is aborted. */
  lose(reason: string): void {
    for (const streamId of [...this.#streams.keys()]) this.#end(streamId, new Error(`link lost: ${reason}`))
  }

  #onRequest(frame: Extract<LinkFrame, { type: 'request' }>): void {
    const { streamId, head } = frame
    this.#checkNew(streamId)
    if (this.#hasNoRoom()) {
      this.#intake.checkRoom(head.bodyBytes)
      this.#refuseStream(streamId, 'tooManyStreams', 'too many streams are open')
      // Its body goes nowhere when it comes.
      if (head.bodyBytes > 0) this.#socket.send({ type: 'credit', streamId: 0, bytes: head.bodyBytes })
      return
    }
    this.#intake.begin(streamId, head)
    this.#options.onRequest(1)
    const end = () => {
      this.#streams.delete(streamId)
      this.#intake.drop(streamId)
      this.#options.onRequest(-1)
    }
    this.#streams.set(streamId, { credit: new SendCredit(head.creditBytes), end })
  }

  #onEnd(streamId: number): void {
    const request = this.#intake.complete(streamId)
    const stream = this.#streams.get(streamId)
    if (request && stream) void this.#serve(streamId, request, stream.credit)
  }

  #end(streamId: number, reason: Error): void {
    const stream = this.#streams.get(streamId)
    stream?.credit.close()
    stream?.end(reason)
  }

  async #serve(streamId: number, request: TransportRequest, credit: SendCredit): Promise<void> {
    const { handler, onRequest, logger } = this.#options
    const controller = new AbortController()
    const { signal } = controller
    this.#streams.set(streamId, { credit, end: (reason) => controller.abort(reason) })
    try {
      const { status, headers, body } = await handler(request, { signal })
      // Checked here: a head that the server cannot read would cost the whole connection.
      const head = ResponseHead.parse({ status, headers })
      if (!signal.aborted) this.#socket.send({ type: 'response', streamId, head })
      await this.#sendBody(streamId, body, credit, signal)
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
      this.#streams.delete(streamId)
      onRequest(-1)
    }
  }

  async #sendBody(
    streamId: number,
    body: AsyncIterable<Uint8Array>,
    credit: SendCredit,
    signal: AbortSignal,
  ): Promise<void> {
    const iterator = new AbortableIterator(body, signal)
    for (;;) {
      // Nothing is asked of the engine while its reader is behind.
      if (credit.roomBytes === 0 && !(await credit.wait())) break
      const step = await iterator.next()
      if (!step) break
      if (step.done) return
      const chunk = step.value
      let offset = 0
      while (offset < chunk.byteLength) {
        if (credit.roomBytes === 0 && !(await credit.wait())) break
        const bytes = chunk.subarray(offset, offset + Math.min(pieceBytesMax, credit.roomBytes))
        offset += bytes.byteLength
        credit.spend(bytes.byteLength)
        const sent = this.#socket.sendPaced(streamId, 'foreground', () =>
          signal.aborted ? undefined : { type: 'data', streamId, bytes },
        )
        if (sent !== true) await sent
      }
    }
    iterator.leave()
  }

  #onKvSubscribe(streamId: number, { rank, creditBytes }: KvSubscribe): void {
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
    void this.#feed(streamId, source, rank, creditBytes)
  }

  async #feed(streamId: number, source: KvEventSource, rank: number, creditBytes: number): Promise<void> {
    const { limits, logger } = this.#options
    const credit = new SendCredit(creditBytes)
    let wake = () => {}
    // Half of the credit is always to be had by a reader that has taken everything, because less is not given back.
    const halfBytes = Math.floor(creditBytes / 2)
    const partBytesMax = Math.max(1, Math.min(pieceBytesMax, halfBytes - frameCostBytes))
    const feed = new KvFeed(source, rank, {
      bufferBytesMax: limits.kvBufferBytesMax,
      batchBytesMax: halfBytes - frameCostBytes * Math.ceil(halfBytes / partBytesMax),
      onReady: () => wake(),
    })
    this.#streams.set(streamId, { credit, end: () => wake() })
    try {
      while (!credit.isClosed) {
        // Taken only when it can be sent: until then, what is new joins what waits, or the snapshot.
        if (!(await credit.wait())) return
        const message = feed.take()
        if (message) {
          checkSequence(message)
          for (const frame of kvFrames(streamId, message, { partBytesMax, ...limits })) {
            if (!(await credit.wait(Math.max(1, frame.bytes.byteLength)))) return
            credit.spend(frame.bytes.byteLength)
            await this.#socket.sendPaced(streamId, 'background', () => (credit.isClosed ? undefined : frame))
            if (credit.isClosed) return
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
      if (!credit.isClosed) this.#refuseStream(streamId, 'kvFailed', message.slice(0, 1024))
    } finally {
      feed.close()
      this.#streams.delete(streamId)
    }
  }

  #checkNew(streamId: number): void {
    if (this.#streams.has(streamId)) throw new LinkProtocolError(`stream ${streamId} is in use`)
  }

  #hasNoRoom(): boolean {
    return this.#streams.size >= this.#options.limits.streamsMax
  }

  #refuseStream(streamId: number, code: string, message: string): void {
    this.#socket.send({ type: 'error', streamId, head: { code, message } })
  }
}

function checkSequence(message: KvOutgoing): void {
  const leastSequence = message.type === 'batch' ? 0 : -1
  if (Number.isSafeInteger(message.sequence) && message.sequence >= leastSequence) return
  throw new LinkProtocolError(`kv ${message.type} with sequence number ${message.sequence}`)
}
