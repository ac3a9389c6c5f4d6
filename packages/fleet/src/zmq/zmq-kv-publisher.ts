import type { Router, XPublisher } from 'zeromq'
import { z } from 'zod'
import { InvalidFleetOptionsError } from '../errors.js'
import { bound, clockOption, durationMs, loggerOption, parseOptions, part, randomOption } from '../options.js'
import { sleep } from '../ports/clock.js'
import type { KvEventSource } from '../ports/kv-events.js'
import { formatEndpoint, isWildcard, parseEndpoint, type ZmqEndpoint } from './endpoints.js'
import { RankPublisher } from './rank-publisher.js'
import { socketOptions, ZmqSockets } from './sockets.js'

const endpointOption = () =>
  z.string().refine((text) => parseEndpoint(text) !== undefined, { message: 'must be tcp://<host>:<port>' })

const Options = z.strictObject({
  ...socketOptions,
  source: part<KvEventSource>('a KvEventSource'),
  /** Where batches are published: an address of this machine, `*` for all; rank r at port + r; port 0: free ones are chosen. */
  bind: endpointOption().default('tcp://127.0.0.1:0'),
  /** Where replays and snapshots are asked for, likewise; the host of `bind` with port 0 by default. */
  replayBind: endpointOption().optional(),
  /** Host that readers connect to, IPv6 in brackets; needed where `bind` is a wildcard. */
  advertiseHost: z.string().min(1).optional(),
  topic: z.string().max(256).default('kv-events'),
  /** Messages that may wait for one reader; one more is dropped for it. */
  sendHighWaterMark: bound().max(1_000_000).default(10_000),
  /** Newest batches of a rank that can be replayed, in number and bytes. */
  ringBatchesMax: bound().max(60_000).default(10_000),
  ringBytesMax: bound().default(64 * 1024 * 1024),
  /** Snapshots of one rank under way at once; whoever asks for one more is to ask again. */
  sessionsMax: bound().default(64),
  /** A reader of a snapshot that is silent for so long is forgotten. */
  sessionIdleMs: durationMs().default(10_000),
  /** How long a port in use is tried again; a predecessor may be leaving it. */
  bindTimeoutMs: durationMs().default(5_000),
  clock: clockOption,
  random: randomOption,
  logger: loggerOption,
})
export type ZmqKvPublisherOptions = z.input<typeof Options>

/** What a worker's record says of its events; the parts of `ext` beside its others. */
export interface ZmqKvAnnouncement {
  readonly kv_events_endpoint: string
  readonly ext: {
    readonly kv_events: 'zmq'
    readonly kv_replay_endpoint: string
    readonly kv_snapshot_endpoint: string
  }
}

interface Bound {
  readonly publisher: XPublisher
  readonly router: Router
}

/** Below the ports that systems hand out themselves, and below those of Kubernetes services, which may be hijacked. */
const chosenPortMin = 10_000
const chosenPortMax = 29_999
const chosenTriesMax = 64
const bindPauseMs = 20

/** A worker's side: publishes a source as vLLM does, so that routers of the reference can read it, and answers what readers miss. */
export class ZmqKvPublisher {
  readonly #options: z.output<typeof Options>
  readonly #sockets: ZmqSockets
  readonly #ranks: readonly RankPublisher[]
  readonly #unsubscribe: () => void
  readonly #stop = new AbortController()
  #bound: readonly Bound[] = []
  #listening: Promise<ZmqKvAnnouncement> | undefined
  #closing: Promise<void> | undefined

  /**
   * Starts to keep batches; `listen` opens the ports.
   * @throws InvalidFleetOptionsError
   */
  constructor(options: ZmqKvPublisherOptions) {
    this.#options = parseOptions('ZmqKvPublisher', Options, options)
    const { source, bind, advertiseHost } = this.#options
    const isContiguous = source.ranks.length > 0 && source.ranks.every((rank, index) => rank === index)
    if (!isContiguous) {
      const ranks = source.ranks.join(', ')
      throw new InvalidFleetOptionsError(
        `invalid options of ZmqKvPublisher: source: ranks must be 0, 1, ... without holes, since each has a port; they are [${ranks}]`,
      )
    }
    const host = advertiseHost ?? parseEndpoint(bind)?.host ?? ''
    if (isWildcard(host) || !parseEndpoint(`tcp://${host}:1`)) {
      throw new InvalidFleetOptionsError(
        `invalid options of ZmqKvPublisher: advertiseHost: must be a host that readers can connect to, for bind '${bind}'`,
      )
    }
    this.#sockets = new ZmqSockets(this.#options)
    this.#ranks = source.ranks.map((rank) => new RankPublisher({ ...this.#options, rank }))
    this.#unsubscribe = source.subscribe((batch) => this.#ranks[batch.rank]?.publish(batch))
  }

  get openSockets(): number {
    return this.#sockets.openCount
  }

  /**
   * Opens the ports; the same promise every time.
   * @returns what the record is to say
   * @throws InvalidFleetOptionsError for ports that cannot be had
   */
  listen(): Promise<ZmqKvAnnouncement> {
    this.#listening ??= this.#listen()
    return this.#listening
  }

  /** Stops at once: what readers have not got yet they find missing. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #listen(): Promise<ZmqKvAnnouncement> {
    const { bind, advertiseHost } = this.#options
    const wish = parseEndpoint(bind) as ZmqEndpoint
    const replayWish = this.#replayWish(wish)
    const publishers = await this.#bindRanks('bind', wish, (host) =>
      this.#sockets.publisher(host, this.#options.sendHighWaterMark),
    )
    try {
      // A whole ring must fit, or its end would be dropped.
      const highWaterMark = this.#options.ringBatchesMax + tasksSpare
      const routers = await this.#bindRanks('replayBind', replayWish, (host) =>
        this.#sockets.router(host, highWaterMark),
      )
      this.#bound = publishers.sockets.map((publisher, rank) => ({
        publisher,
        router: routers.sockets[rank] as Router,
      }))
      this.#ranks.forEach((rank, index) => {
        rank.open(this.#bound[index] as Bound)
      })
      const host = advertiseHost ?? wish.host
      const replay = formatEndpoint({ host, port: routers.port })
      return {
        kv_events_endpoint: formatEndpoint({ host, port: publishers.port }),
        ext: { kv_events: 'zmq', kv_replay_endpoint: replay, kv_snapshot_endpoint: replay },
      }
    } catch (error) {
      for (const socket of publishers.sockets) this.#sockets.close(socket)
      throw error
    }
  }

  #replayWish(wish: ZmqEndpoint): ZmqEndpoint {
    const { replayBind } = this.#options
    return replayBind === undefined ? { ...wish, port: 0 } : (parseEndpoint(replayBind) as ZmqEndpoint)
  }

  async #bindRanks<S extends XPublisher | Router>(
    option: string,
    wish: ZmqEndpoint,
    create: (host: string) => S | undefined,
  ): Promise<{ readonly port: number; readonly sockets: readonly S[] }> {
    const { clock, random, bindTimeoutMs } = this.#options
    const sinceMs = clock.now()
    const rankCount = this.#ranks.length
    for (let tries = 1; ; tries++) {
      const portRange = chosenPortMax - chosenPortMin - rankCount + 2
      const port = wish.port > 0 ? wish.port : chosenPortMin + Math.floor(random() * portRange)
      const sockets: S[] = []
      try {
        this.#stop.signal.throwIfAborted()
        for (let rank = 0; rank < rankCount; rank++) {
          const socket = create(wish.host)
          if (!socket) throw new Error('too many sockets are open; raise socketsMax')
          sockets.push(socket)
          await socket.bind(formatEndpoint({ host: wish.host, port }, rank))
        }
        this.#stop.signal.throwIfAborted()
        return { port, sockets }
      } catch (error) {
        for (const socket of sockets) this.#sockets.close(socket)
        const isOver = wish.port > 0 ? clock.now() - sinceMs >= bindTimeoutMs : tries >= chosenTriesMax
        if (!isInUse(error) || isOver || this.#stop.signal.aborted) {
          const reason = error instanceof Error ? error.message : String(error)
          const range = rankCount > 1 ? ` and the ${rankCount - 1} ports after it` : ''
          throw new InvalidFleetOptionsError(
            `cannot bind ${formatEndpoint({ host: wish.host, port })}${range}: ${reason}; change the option '${option}'`,
            { cause: error },
          )
        }
        if (wish.port > 0) {
          await sleep(clock, bindPauseMs, this.#stop.signal).catch(() => {
            // Closed meanwhile: the next round says so.
          })
        }
      }
    }
  }

  async #close(): Promise<void> {
    this.#stop.abort(new Error('the publisher was closed'))
    this.#unsubscribe()
    for (const rank of this.#ranks) rank.close()
    await this.#listening?.catch(() => {
      // Whoever called `listen` was told.
    })
    for (const { publisher, router } of this.#bound) {
      this.#sockets.close(publisher)
      this.#sockets.close(router)
    }
  }
}

/** Room beside a whole ring, for parts of snapshots. */
const tasksSpare = 64

function isInUse(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EADDRINUSE'
}
