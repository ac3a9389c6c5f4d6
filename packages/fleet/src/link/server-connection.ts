import { LinkProtocolError, TransportError } from '../errors.js'
import type { LoadReport } from '../ports/kv-events.js'
import type { TransportRequest, TransportResponse } from '../ports/request-transport.js'
import { type LinkFrame, RequestHead } from './frames.js'
import type { KvStreamFrame, KvStreams } from './kv-subscription.js'
import { type LinkLimits, pieceBytes } from './limits.js'
import type { LinkSocket, TalkFrame } from './link-socket.js'
import { ResponseStream } from './response-stream.js'

type ServerStream =
  | { readonly kind: 'request'; readonly response: ResponseStream }
  | { readonly kind: 'kv'; readonly accept: (frame: KvStreamFrame) => void }

/** A welcomed worker, as its server holds it: the streams of one connection. */
export class ServerConnection implements KvStreams {
  readonly workerId: string
  readonly hasKvEvents: boolean
  readonly #socket: LinkSocket
  readonly #limits: LinkLimits
  readonly #onDrain: () => void
  readonly #streams = new Map<number, ServerStream>()
  readonly #lossListeners = new Set<() => void>()
  #isLost = false
  #requestCount = 0
  #idleWaiters: (() => void)[] = []
  #lastStreamId = 0
  #load: LoadReport | undefined

  constructor(
    socket: LinkSocket,
    options: { workerId: string; hasKvEvents: boolean; limits: LinkLimits; onDrain: () => void },
  ) {
    this.#socket = socket
    this.workerId = options.workerId
    this.hasKvEvents = options.hasKvEvents
    this.#limits = options.limits
    this.#onDrain = options.onDrain
  }

  get socket(): LinkSocket {
    return this.#socket
  }

  get load(): LoadReport | undefined {
    return this.#load
  }

  /** @throws TransportError, or the signal's reason */
  send(request: TransportRequest, signal: AbortSignal | undefined): Promise<TransportResponse> {
    signal?.throwIfAborted()
    const streamId = this.#newStreamId()
    if (streamId === undefined) {
      throw this.#unreachable(`${this.#streams.size} streams are open; raise limits.streamsMax`)
    }
    const onAbort = () => response.abort(signal?.reason)
    const response = new ResponseStream({
      workerId: this.workerId,
      bufferBytesMax: this.#limits.streamBufferBytesMax,
      onOver: (cancelWorker) => {
        signal?.removeEventListener('abort', onAbort)
        if (cancelWorker) this.#socket.send({ type: 'cancel', streamId })
        this.#forget(streamId)
      },
    })
    // Known before its first frame goes out: sending may find that the connection is over, which ends the stream.
    this.#streams.set(streamId, { kind: 'request', response })
    this.#requestCount += 1
    signal?.addEventListener('abort', onAbort, { once: true })
    try {
      this.#sendHead(streamId, request)
    } catch (error) {
      signal?.removeEventListener('abort', onAbort)
      this.#forget(streamId)
      throw error
    }
    void this.#sendBody(streamId, request.body, response)
    return response.response
  }

  open(rank: number, accept: (frame: KvStreamFrame) => void): number | undefined {
    const streamId = this.#newStreamId()
    if (streamId === undefined) return undefined
    this.#streams.set(streamId, { kind: 'kv', accept })
    this.#socket.send({ type: 'kvSubscribe', streamId, head: { rank } })
    return streamId
  }

  cancel(streamId: number): void {
    if (!this.#streams.has(streamId)) return
    this.#forget(streamId)
    this.#socket.send({ type: 'cancel', streamId })
  }

  onLost(listener: () => void): () => void {
    if (this.#isLost) listener()
    else this.#lossListeners.add(listener)
    return () => this.#lossListeners.delete(listener)
  }

  /** @throws LinkProtocolError for a frame that a worker may not send, or not now */
  accept(frame: TalkFrame): void {
    if (frame.type === 'drain') {
      this.#onDrain()
      return
    }
    if (frame.type === 'load') {
      const { runningRequests, waitingRequests, kvUsageRatio } = frame.head
      this.#load = { runningRequests, waitingRequests, kvUsageRatio }
      return
    }
    if (!('streamId' in frame)) throw unexpected(frame)
    const stream = this.#streams.get(frame.streamId)
    if (!stream) return
    if (stream.kind === 'request') this.#acceptOfRequest(stream.response, frame)
    else this.#acceptOfKv(stream.accept, frame)
  }

  /** Ends every stream; the socket is the caller's. */
  lose(reason: string): void {
    this.#isLost = true
    for (const [streamId, stream] of [...this.#streams]) {
      if (stream.kind === 'request') stream.response.lose(reason)
      this.#forget(streamId)
    }
    for (const listener of [...this.#lossListeners]) listener()
    this.#lossListeners.clear()
  }

  /** Resolves when no request is open. */
  whenIdle(): Promise<void> {
    if (this.#requestCount === 0) return Promise.resolve()
    return new Promise((resolve) => {
      this.#idleWaiters.push(resolve)
    })
  }

  #acceptOfRequest(response: ResponseStream, frame: LinkFrame): void {
    if (frame.type === 'response') response.acceptHead(frame.head)
    else if (frame.type === 'data') response.acceptData(frame.bytes)
    else if (frame.type === 'end') response.acceptEnd()
    else if (frame.type === 'error') response.acceptError(frame.head)
    else throw unexpected(frame)
  }

  #acceptOfKv(accept: (frame: KvStreamFrame) => void, frame: LinkFrame): void {
    if (frame.type !== 'kvSnapshot' && frame.type !== 'kvBatch' && frame.type !== 'error')
      throw unexpected(frame)
    if (frame.type === 'error') this.#forget(frame.streamId)
    accept(frame)
  }

  #sendHead(streamId: number, request: TransportRequest): void {
    const { method, path, headers } = request
    // Checked here: a head that the worker cannot read would cost the whole connection.
    const head = RequestHead.safeParse({ method, path, headers })
    if (!head.success) {
      const issue = head.error.issues[0]
      throw this.#unreachable(`request ${issue?.path.join('.')}: ${issue?.message}`)
    }
    try {
      this.#socket.send({ type: 'request', streamId, head: head.data })
    } catch (error) {
      if (!(error instanceof LinkProtocolError)) throw error
      throw this.#unreachable(error.message)
    }
  }

  async #sendBody(streamId: number, body: Uint8Array, response: ResponseStream): Promise<void> {
    const size = pieceBytes(this.#limits)
    for (let offset = 0; offset < body.byteLength; offset += size) {
      const bytes = body.subarray(offset, offset + size)
      await this.#socket.sendPaced(() => (response.isOver ? undefined : { type: 'data', streamId, bytes }))
      if (response.isOver) return
    }
    if (!response.isOver) this.#socket.send({ type: 'end', streamId })
  }

  #newStreamId(): number | undefined {
    if (this.#streams.size >= this.#limits.streamsMax) return undefined
    do {
      this.#lastStreamId = (this.#lastStreamId % 0xffff_ffff) + 1
    } while (this.#streams.has(this.#lastStreamId))
    return this.#lastStreamId
  }

  #forget(streamId: number): void {
    const stream = this.#streams.get(streamId)
    if (!this.#streams.delete(streamId) || stream?.kind !== 'request') return
    this.#requestCount -= 1
    if (this.#requestCount === 0) for (const resolve of this.#idleWaiters.splice(0)) resolve()
  }

  #unreachable(why: string): TransportError {
    return new TransportError(
      'INFERA_FLEET_UNREACHABLE',
      this.workerId,
      `worker '${this.workerId}' cannot be asked: ${why}`,
    )
  }
}

function unexpected(frame: LinkFrame): LinkProtocolError {
  return new LinkProtocolError(`${frame.type} frame where a worker may not send it`)
}
