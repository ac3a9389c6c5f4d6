import { LinkProtocolError, TransportError } from '../errors.js'
import type { LoadReport } from '../ports/kv-events.js'
import type { TransportRequest, TransportResponse } from '../ports/request-transport.js'
import { BodyCredit } from './body-credit.js'
import { CreditBudget, CreditWindow } from './credit-window.js'
import { type LinkFrame, RequestHead } from './frames.js'
import type { KvStreamFrame, KvStreams } from './kv-subscription.js'
import { frameCostBytes, type LinkLimits, pieceBytesMax } from './limits.js'
import type { LinkSocket, TalkFrame } from './link-socket.js'
import { ResponseStream } from './response-stream.js'

type ServerStream =
  | { readonly kind: 'request'; readonly response: ResponseStream }
  | { readonly kind: 'kv'; readonly accept: (frame: KvStreamFrame) => void; readonly window: CreditWindow }

export interface ServerConnectionOptions {
  readonly workerId: string
  readonly hasKvEvents: boolean
  readonly limits: LinkLimits
  readonly onDrain: () => void
  /** What the worker said of its own limits; undefined: the same as ours. */
  readonly requestBodyBytesMax?: number | undefined
  readonly requestBodiesBytesMax?: number | undefined
}

/** A welcomed worker, as its server holds it: the streams of one connection. */
export class ServerConnection implements KvStreams {
  readonly workerId: string
  readonly hasKvEvents: boolean
  readonly #socket: LinkSocket
  readonly #limits: LinkLimits
  readonly #onDrain: () => void
  readonly #requestBodyBytesMax: number
  readonly #bodyCredit: BodyCredit
  readonly #responseBudget: CreditBudget
  readonly #kvBudget: CreditBudget
  readonly #streams = new Map<number, ServerStream>()
  /** Requests of which the worker has heard nothing yet, because their bodies stand in line. */
  readonly #inLine = new Set<ResponseStream>()
  readonly #lossListeners = new Set<() => void>()
  #isLost = false
  #requestCount = 0
  #idleWaiters: (() => void)[] = []
  #lastStreamId = 0
  #load: LoadReport | undefined

  constructor(socket: LinkSocket, options: ServerConnectionOptions) {
    this.#socket = socket
    this.workerId = options.workerId
    this.hasKvEvents = options.hasKvEvents
    this.#limits = options.limits
    this.#onDrain = options.onDrain
    const { requestBodyBytesMax, requestBodiesBytesMax } = options
    const bodiesBytesMax = requestBodiesBytesMax ?? this.#limits.requestBodiesBytesMax
    this.#requestBodyBytesMax = Math.min(
      requestBodyBytesMax ?? this.#limits.requestBodyBytesMax,
      bodiesBytesMax,
    )
    this.#bodyCredit = new BodyCredit(bodiesBytesMax)
    this.#responseBudget = new CreditBudget(this.#limits)
    const { kvWindowBytes } = this.#limits
    this.#kvBudget = new CreditBudget({
      streamWindowBytes: kvWindowBytes,
      streamWindowMinBytes: kvWindowBytes,
      connectionWindowBytes: 0,
    })
  }

  get socket(): LinkSocket {
    return this.#socket
  }

  get load(): LoadReport | undefined {
    return this.#load
  }

  /** What this connection has in credit or holds now, in bytes. */
  get usage(): { readonly responseBytes: number; readonly kvBytes: number; readonly bodyBytes: number } {
    return {
      responseBytes: this.#responseBudget.usedBytes,
      kvBytes: this.#kvBudget.usedBytes,
      bodyBytes: this.#bodyCredit.reservedBytes,
    }
  }

  /** @throws TransportError, or the signal's reason */
  send(request: TransportRequest, signal: AbortSignal | undefined): Promise<TransportResponse> {
    signal?.throwIfAborted()
    const streamId = this.#newStreamId()
    if (streamId === undefined) {
      throw this.#unreachable(`${this.#streams.size} streams are open; raise limits.streamsMax`)
    }
    this.#checkBody(request.body)
    let isStarted = false
    let leaveLine = () => {}
    const onAbort = () => response.abort(signal?.reason)
    const window = new CreditWindow(this.#responseBudget, (bytes) =>
      this.#socket.send({ type: 'credit', streamId, bytes }),
    )
    const response = new ResponseStream({
      workerId: this.workerId,
      window,
      onOver: (cancelWorker) => {
        signal?.removeEventListener('abort', onAbort)
        this.#inLine.delete(response)
        if (!isStarted) leaveLine()
        else if (cancelWorker) this.#socket.send({ type: 'cancel', streamId })
        this.#forget(streamId)
      },
    })
    // Known before its first frame goes out: sending may find that the connection is over, which ends the stream.
    this.#streams.set(streamId, { kind: 'request', response })
    this.#requestCount += 1
    signal?.addEventListener('abort', onAbort, { once: true })
    this.#inLine.add(response)
    const { byteLength } = request.body
    leaveLine = this.#bodyCredit.reserve(byteLength, () => {
      this.#inLine.delete(response)
      try {
        this.#sendHead(streamId, request, window)
      } catch (error) {
        // The worker will not give back what it has not heard of. Before the abort, which finds the line already left.
        if (byteLength > 0) this.#bodyCredit.giveBack(byteLength)
        response.abort(error)
        return
      }
      isStarted = true
      void this.#sendBody(streamId, request.body, response)
    })
    return response.response
  }

  open(rank: number, accept: (frame: KvStreamFrame) => void): number | undefined {
    const streamId = this.#newStreamId()
    if (streamId === undefined) return undefined
    const window = new CreditWindow(this.#kvBudget, (bytes) =>
      this.#socket.send({ type: 'credit', streamId, bytes }),
    )
    this.#streams.set(streamId, { kind: 'kv', accept, window })
    this.#socket.send({ type: 'kvSubscribe', streamId, head: { rank, creditBytes: window.open() } })
    return streamId
  }

  release(streamId: number, costBytes: number): void {
    const stream = this.#streams.get(streamId)
    if (stream?.kind === 'kv') stream.window.release(costBytes)
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
      // The worker waits only for what it has heard of.
      for (const response of [...this.#inLine]) response.lose('it is draining')
      return
    }
    if (frame.type === 'load') {
      const { runningRequests, waitingRequests, kvUsageRatio } = frame.head
      this.#load = { runningRequests, waitingRequests, kvUsageRatio }
      return
    }
    if (frame.type === 'credit') {
      if (frame.streamId !== 0) throw unexpected(frame)
      this.#bodyCredit.giveBack(frame.bytes)
      return
    }
    if (!('streamId' in frame)) throw unexpected(frame)
    const stream = this.#streams.get(frame.streamId)
    if (!stream) return
    if (stream.kind === 'request') this.#acceptOfRequest(stream.response, frame)
    else this.#acceptOfKv(stream, frame)
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

  #acceptOfKv(stream: Extract<ServerStream, { kind: 'kv' }>, frame: LinkFrame): void {
    if (frame.type === 'error') {
      this.#forget(frame.streamId)
      stream.accept(frame)
      return
    }
    if (frame.type !== 'kvSnapshot' && frame.type !== 'kvBatch') throw unexpected(frame)
    stream.window.receive(frame.bytes.byteLength + frameCostBytes)
    stream.accept(frame)
  }

  #checkBody(body: Uint8Array): void {
    if (body.byteLength <= this.#requestBodyBytesMax) return
    throw this.#unreachable(
      `its request bodies are at most ${this.#requestBodyBytesMax} bytes, and this one is ${body.byteLength}; ` +
        `raise the worker's limits.requestBodyBytesMax and limits.requestBodiesBytesMax`,
    )
  }

  #sendHead(streamId: number, request: TransportRequest, window: CreditWindow): void {
    const { method, path, headers, body } = request
    // Checked here: a head that the worker cannot read would cost the whole connection.
    const head = RequestHead.safeParse({
      method,
      path,
      headers,
      bodyBytes: body.byteLength,
      creditBytes: window.open(),
    })
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
    for (let offset = 0; offset < body.byteLength; offset += pieceBytesMax) {
      const bytes = body.subarray(offset, offset + pieceBytesMax)
      await this.#socket.sendPaced(streamId, 'foreground', () =>
        response.isOver ? undefined : { type: 'data', streamId, bytes },
      )
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
    this.#streams.delete(streamId)
    if (stream?.kind === 'kv') {
      stream.window.end()
      stream.window.release(stream.window.heldBytes)
    }
    if (stream?.kind !== 'request') return
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
