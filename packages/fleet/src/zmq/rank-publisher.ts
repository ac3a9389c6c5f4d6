import type { Router, XPublisher } from 'zeromq'
import type { Clock, Timer } from '../ports/clock.js'
import type { KvEventBatch, KvEventSource } from '../ports/kv-events.js'
import type { Logger } from '../ports/logger.js'
import { BatchRing } from './batch-ring.js'
import { decodeSequence, encodeEnd, encodeSequence } from './frames.js'
import { encodeAnswer, parseAsk, parseSync } from './snapshot-frames.js'
import { SnapshotSession } from './snapshot-session.js'

export interface RankPublisherOptions {
  readonly rank: number
  readonly source: KvEventSource
  readonly topic: string
  readonly payloadBytesMax: number
  readonly ringBatchesMax: number
  readonly ringBytesMax: number
  readonly sessionsMax: number
  readonly sessionIdleMs: number
  readonly clock: Clock
  readonly logger: Logger
}

interface Session {
  readonly reader: Uint8Array
  readonly snapshot: SnapshotSession
  idle: Timer | undefined
}

/** Work that waits at the ROUTER socket, replays and parts of snapshots; beyond, questions are not heard, and asked again. */
const tasksMax = 256
const nothing = Buffer.alloc(0)

/**
 * Publishes one rank: live batches on a PUB socket as vLLM does, and on a ROUTER socket the batches of late, and snapshots. A reader
 * that has no room for a live batch does not get it; it sees the gap and asks here.
 */
export class RankPublisher {
  readonly #options: RankPublisherOptions
  readonly #ring: BatchRing
  readonly #topic: Buffer
  readonly #sessions = new Map<string, Session>()
  readonly #tasks: (() => Promise<void>)[] = []
  #publisher: XPublisher | undefined
  #router: Router | undefined
  #isWorking = false
  #isClosed = false

  constructor(options: RankPublisherOptions) {
    this.#options = options
    this.#topic = Buffer.from(options.topic)
    this.#ring = new BatchRing({ countMax: options.ringBatchesMax, bytesMax: options.ringBytesMax })
  }

  /** Batches may have come before: they are in the ring. */
  open(sockets: { readonly publisher: XPublisher; readonly router: Router }): void {
    this.#publisher = sockets.publisher
    this.#router = sockets.router
    void this.#serve(sockets.publisher, (frames) => this.#subscribed(sockets.publisher, frames))
    void this.#serve(sockets.router, (frames) => this.#asked(sockets.router, frames))
  }

  publish(batch: KvEventBatch): void {
    if (this.#isClosed) return
    const { rank, sequence, payload } = batch
    if (payload.byteLength > this.#options.payloadBytesMax) {
      // Readers would drop the connection over it; so they see a gap, and ask for a snapshot.
      const fields = { rank, sequence, sizeBytes: payload.byteLength }
      this.#options.logger.warn(fields, 'a batch of kv events exceeds payloadBytesMax: left out')
      return
    }
    this.#ring.push({ sequence, payload })
    if (this.#publisher) this.#send(this.#publisher, [this.#topic, encodeSequence(sequence), payload])
  }

  close(): void {
    this.#isClosed = true
    this.#tasks.length = 0
    for (const session of this.#sessions.values()) this.#forget(session)
    this.#ring.clear()
  }

  /** Never rejects. Ends when the socket is closed. */
  async #serve(socket: XPublisher | Router, accept: (frames: readonly Uint8Array[]) => void): Promise<void> {
    try {
      for await (const frames of socket) accept(frames)
    } catch (error) {
      if (this.#isClosed) return
      const fields = { rank: this.#options.rank, error: String(error) }
      this.#options.logger.error(fields, 'a socket of kv events failed')
    }
  }

  #send(publisher: XPublisher, frames: Uint8Array[]): void {
    publisher.send(frames).catch((error: unknown) => {
      if (this.#isClosed) return
      const fields = { rank: this.#options.rank, error: String(error) }
      this.#options.logger.warn(fields, 'a batch of kv events was not sent')
    })
  }

  #subscribed(publisher: XPublisher, frames: readonly Uint8Array[]): void {
    const topic = parseSync(frames)
    if (topic) this.#send(publisher, [topic])
  }

  #asked(router: Router, frames: readonly Uint8Array[]): void {
    const [reader, ...question] = frames
    if (!reader) return
    const [delimiter, number] = question
    const from = question.length === 2 && delimiter?.byteLength === 0 ? decodeSequence(number) : undefined
    if (from !== undefined) {
      this.#addTask(() => this.#replay(router, reader, from))
      return
    }
    const ask = parseAsk(question)
    if (ask === 'open') this.#open(router, reader)
    else if (ask === 'more') this.#more(router, reader)
    else this.#options.logger.debug({ rank: this.#options.rank }, 'an unreadable question was dropped')
  }

  #open(router: Router, reader: Uint8Array): void {
    const key = keyOf(reader)
    const former = this.#sessions.get(key)
    if (former) this.#forget(former)
    const { source, rank, sessionsMax, payloadBytesMax } = this.#options
    if (this.#sessions.size >= sessionsMax) {
      this.#addTask(() => this.#answer(router, reader, encodeAnswer({ type: 'gone' })))
      return
    }
    try {
      const snapshot = new SnapshotSession(source.snapshot(rank), payloadBytesMax)
      const session: Session = { reader, snapshot, idle: undefined }
      this.#sessions.set(key, session)
      this.#armIdle(session)
      this.#addTask(() => this.#sendParts(router, session))
    } catch (error) {
      this.#options.logger.error({ rank, error: String(error) }, 'the source gives no snapshot')
      this.#addTask(() => this.#answer(router, reader, encodeAnswer({ type: 'gone' })))
    }
  }

  #more(router: Router, reader: Uint8Array): void {
    const session = this.#sessions.get(keyOf(reader))
    if (!session) {
      this.#addTask(() => this.#answer(router, reader, encodeAnswer({ type: 'gone' })))
      return
    }
    session.snapshot.more()
    this.#addTask(() => this.#sendParts(router, session))
  }

  async #sendParts(router: Router, session: Session): Promise<void> {
    const { rank, logger } = this.#options
    try {
      for (;;) {
        const part = session.snapshot.take()
        if (!part) break
        await this.#answer(router, session.reader, part)
      }
    } catch (error) {
      logger.error({ rank, error: String(error) }, 'a snapshot of the cache could not be sent')
      this.#forget(session)
      await this.#answer(router, session.reader, encodeAnswer({ type: 'gone' }))
      return
    }
    if (session.snapshot.isOver) this.#forget(session)
    else this.#armIdle(session)
  }

  #armIdle(session: Session): void {
    const { clock, sessionIdleMs } = this.#options
    session.idle?.cancel()
    session.idle = clock.setTimer(sessionIdleMs, () => this.#forget(session))
  }

  #forget(session: Session): void {
    session.idle?.cancel()
    session.snapshot.leave()
    const key = keyOf(session.reader)
    if (this.#sessions.get(key) === session) this.#sessions.delete(key)
  }

  async #replay(router: Router, reader: Uint8Array, from: number): Promise<void> {
    // What is published meanwhile comes live: the end of this is fixed now, or a busy engine would never come to it.
    const end = this.#ring.nextSequence
    for (let next = from; next < end; ) {
      const batch = this.#ring.atLeast(next)
      if (!batch || this.#isClosed) break
      await this.#answer(router, reader, [nothing, encodeSequence(batch.sequence), batch.payload])
      next = batch.sequence + 1
    }
    await this.#answer(router, reader, [nothing, encodeEnd(), nothing])
  }

  async #answer(router: Router, reader: Uint8Array, frames: Uint8Array[]): Promise<void> {
    if (this.#isClosed || router !== this.#router) return
    await router.send([reader, ...frames])
  }

  #addTask(task: () => Promise<void>): void {
    if (this.#tasks.length >= tasksMax) return
    this.#tasks.push(task)
    if (!this.#isWorking) void this.#work()
  }

  /** One answer after the other, since a socket takes one at a time. Never rejects. */
  async #work(): Promise<void> {
    this.#isWorking = true
    for (;;) {
      const task = this.#tasks.shift()
      if (!task) break
      try {
        await task()
      } catch (error) {
        if (this.#isClosed) break
        const fields = { rank: this.#options.rank, error: String(error) }
        this.#options.logger.warn(fields, 'an answer about kv events was not sent')
      }
    }
    this.#isWorking = false
  }
}

function keyOf(reader: Uint8Array): string {
  return Buffer.from(reader).toString('latin1')
}
