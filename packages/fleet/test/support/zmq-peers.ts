import { createServer } from 'node:net'
import { Context, Dealer, type Router, Router as RouterSocket, Subscriber, XPublisher } from 'zeromq'

const context = new Context({ blocky: false })

export const sequenceFrame = (sequence: number) => {
  const frame = Buffer.alloc(8)
  frame.writeBigInt64BE(BigInt(sequence))
  return frame
}

/** The first of `count` ports in a row that are free, below those that systems hand out themselves. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = 10_000 + Math.floor(Math.random() * 19_000)
    const areFree = await Promise.all(Array.from({ length: count }, (_, index) => isFree(first + index)))
    if (areFree.every(Boolean)) return first
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}

/** Binds as a restarted process does: a predecessor may still be leaving. */
async function bindWhenFree(socket: XPublisher | Router, address: string): Promise<void> {
  for (;;) {
    try {
      await socket.bind(address)
      return
    } catch (error) {
      if ((error as { code?: string }).code !== 'EADDRINUSE') throw error
    }
  }
}

export interface RawEngineOptions {
  readonly port: number
  readonly replayPort?: number
  readonly topic?: string
  /** Batches held for replay. */
  readonly bufferMax?: number
  /** As some builds do. */
  readonly topicInReplay?: boolean
  readonly sendHighWaterMark?: number
}

/**
 * One rank of an engine, frame by frame as vLLM writes them, on sockets of the library with nothing of ours in between. An XPUB
 * socket is a PUB socket on the wire, and lets a test wait for its subscribers.
 */
export class RawEngine {
  readonly #options: RawEngineOptions
  readonly #publisher: XPublisher
  readonly #router: Router | undefined
  readonly #topic: string
  readonly #buffer: { sequence: number; payload: Uint8Array }[] = []
  #waiters: (() => void)[] = []
  #subscriptions = 0
  #isClosed = false
  #sequence = 0
  /** Start numbers of the replays asked for. */
  readonly replays: number[] = []
  /** Numbers left out of the next answers, as a full socket does, with how many times. */
  readonly omitted = new Map<number, number>()
  answersReplays = true

  static async start(options: RawEngineOptions): Promise<RawEngine> {
    const engine = new RawEngine(options)
    await bindWhenFree(engine.#publisher, `tcp://127.0.0.1:${options.port}`)
    void engine.#countSubscriptions()
    if (engine.#router) {
      await bindWhenFree(engine.#router, `tcp://127.0.0.1:${options.replayPort}`)
      void engine.#serveReplays(engine.#router)
    }
    return engine
  }

  private constructor(options: RawEngineOptions) {
    this.#options = options
    this.#topic = options.topic ?? 'kv-events'
    const sendHighWaterMark = options.sendHighWaterMark ?? 100_000
    this.#publisher = new XPublisher({
      context,
      linger: 0,
      sendTimeout: 0,
      sendHighWaterMark,
      verbosity: 'allSubs',
    })
    if (options.replayPort !== undefined)
      this.#router = new RouterSocket({ context, linger: 0, sendHighWaterMark: 100_000 })
  }

  get nextSequence(): number {
    return this.#sequence
  }

  /** Resolves once somebody has subscribed, `count` times over all. */
  async subscribed(count = 1): Promise<void> {
    while (this.#subscriptions < count) await new Promise<void>((resolve) => this.#waiters.push(resolve))
  }

  /** @param options.lost it reaches the replay buffer, but no subscriber */
  publish(payload: Uint8Array, options: { readonly lost?: boolean } = {}): number {
    const sequence = this.#sequence++
    this.#buffer.push({ sequence, payload })
    while (this.#buffer.length > (this.#options.bufferMax ?? 10_000)) this.#buffer.shift()
    if (!options.lost) this.send([this.#topic, sequenceFrame(sequence), payload])
    return sequence
  }

  /** Whatever frames. */
  send(frames: (string | Uint8Array)[]): void {
    this.#publisher.send(frames).catch((error: unknown) => {
      throw error
    })
  }

  close(): void {
    this.#isClosed = true
    this.#publisher.close()
    this.#router?.close()
  }

  #omits(sequence: number): boolean {
    const times = this.omitted.get(sequence) ?? 0
    this.omitted.set(sequence, times - 1)
    return times > 0
  }

  async #countSubscriptions(): Promise<void> {
    for await (const [frame] of this.#publisher) {
      if (frame?.[0] !== 1) continue
      this.#subscriptions += 1
      for (const wake of this.#waiters.splice(0)) wake()
    }
  }

  async #serveReplays(router: Router): Promise<void> {
    for await (const frames of router) {
      const [reader, delimiter, start] = frames
      // vLLM takes exactly these three.
      if (frames.length !== 3 || !reader || delimiter?.length !== 0 || start?.length !== 8) continue
      const from = Number(start.readBigUInt64BE())
      this.replays.push(from)
      if (!this.answersReplays) continue
      const topic = this.#options.topicInReplay ? [this.#topic] : []
      for (const { sequence, payload } of [...this.#buffer]) {
        if (sequence < from || this.#omits(sequence)) continue
        if (this.#isClosed) return
        await router.send([reader, '', ...topic, sequenceFrame(sequence), payload])
      }
      await router.send([reader, '', sequenceFrame(-1), ''])
    }
  }
}

/** A SUB socket of the library, as a router of the reference has it. */
export async function rawReader(address: string, topic = 'kv-events') {
  const socket = new Subscriber({ context, linger: 0, receiveHighWaterMark: 1_000 })
  socket.connect(address)
  socket.subscribe(topic)
  return socket
}

/** What a ROUTER socket answers to one question, up to the end marker. */
export async function rawReplay(address: string, from: number): Promise<Buffer[][]> {
  const socket = new Dealer({ context, linger: 0 })
  socket.connect(address)
  await socket.send(['', sequenceFrame(from)])
  const answers: Buffer[][] = []
  try {
    for await (const frames of socket) {
      answers.push(frames)
      if (frames.at(-2)?.equals(sequenceFrame(-1))) break
    }
    return answers
  } finally {
    socket.close()
  }
}

/** A DEALER socket that says what it likes. */
export function rawDealer(address: string): Dealer {
  const socket = new Dealer({ context, linger: 0 })
  socket.connect(address)
  return socket
}
