import { hostname } from 'node:os'
import {
  type Clock,
  LinkWorker,
  type LinkWorkerOptions,
  type Logger,
  type Random,
  silentLogger,
  systemClock,
  systemRandom,
  type WorkerRecord,
} from '@infera/fleet'
import { loadPromptModel, type PromptModel } from '@infera/router/prompt'
import { z } from 'zod'
import { SimEngine } from '../engine/sim-engine.js'
import { simModelFolder } from '../model-folder.js'
import { parseOptions, type SimEngineOptions } from '../options.js'
import { simWorkerRecord, simWorkerSettings } from './sim-worker-record.js'

type TokenFunction = Extract<LinkWorkerOptions['token'], (...args: never[]) => unknown>

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null
}

export const SimWorkerOptions = z.strictObject({
  /** Servers to join, as in `ws://server:8000`, or a discovery that names them; see `LinkWorker`. */
  join: z.custom<LinkWorkerOptions['join']>(
    (join) => (typeof join === 'string' || Array.isArray(join) ? join.length > 0 : isObject(join)),
    'must be a url, a list of urls, or a Discovery',
  ),
  /** The served name. */
  model: z.string().min(1).max(512).default('infera-sim'),
  /** Folder of tokenizer and chat template. Default: the small model that comes with this package. */
  modelFolder: z.string().min(1).default(simModelFolder),
  /** Default: `<host name>:<process id>`, so a second worker of one process needs one of its own. */
  workerId: z.string().min(1).max(512).optional(),
  /** Bearer token for servers that want one, or a function that is asked for it before every attempt to connect. */
  token: z
    .custom<string | TokenFunction>(
      (token) => typeof token === 'function' || (typeof token === 'string' && token !== ''),
      'must be a token or a function that gives one',
    )
    .optional(),
  /** Authorities to trust, and certificate of this worker, for `wss` servers; see `LinkWorker`. */
  tls: z.custom<NonNullable<LinkWorkerOptions['tls']>>(isObject, 'must be an object').optional(),
  /** How long `drain` and `close` wait for running requests, ms. */
  drainTimeoutMs: z.number().nonnegative().default(30_000),
})

export type SimWorkerOptions = z.input<typeof SimWorkerOptions> & {
  /** The engine; its `model` is the worker's. */
  readonly engine?: Omit<SimEngineOptions, 'model'>
  /** Already loaded, instead of `modelFolder`: workers of one process may share it. */
  readonly prompt?: PromptModel
  readonly clock?: Clock
  readonly wallClock?: () => number
  readonly random?: Random
  readonly logger?: Logger
  /** Options of its `LinkWorker` that this package has no opinion on. */
  readonly link?: Pick<
    LinkWorkerOptions,
    | 'serversMax'
    | 'resolve'
    | 'resolveIntervalMs'
    | 'retriesRefusal'
    | 'backoff'
    | 'limits'
    | 'loadIntervalMs'
    | 'connectTimeoutMs'
    | 'dial'
  >
}

/** A simulated engine that has begun to join its servers. */
export interface SimWorker {
  readonly record: WorkerRecord
  readonly engine: SimEngine
  /** Resolves once every server let it in; rejects with LinkRefusedError when one refuses for good. */
  readonly joined: LinkWorker['joined']
  /** Asks for no new work and waits for what runs, at most `drainTimeoutMs`. Idempotent. */
  drain(): Promise<void>
  /** Drains, leaves, and ends the engine. Idempotent. */
  close(): Promise<void>
  /** Leaves and ends the engine now; running requests break. Idempotent. */
  destroy(): void
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Starts a simulated engine as a worker behind link. It stays joined through restarts of its servers until it is closed.
 * @throws InvalidSimOptionsError naming the option and what it must be
 * @throws ModelFolderError of `@infera/router/prompt` when the folder cannot be used
 * @throws UnusableModelError when the tokenizer has too few common words as single tokens
 */
export async function startSimWorker(options: SimWorkerOptions): Promise<SimWorker> {
  const { engine: engineOptions = {}, prompt, wallClock, link: moreOfLink = {}, ...rest } = options
  const { clock = systemClock, random = systemRandom, logger = silentLogger, ...own } = rest
  const parsed = parseOptions(SimWorkerOptions, own)
  const engine = new SimEngine({
    ...engineOptions,
    model: parsed.model,
    prompt: prompt ?? (await loadPromptModel(parsed.modelFolder)),
    clock,
    logger,
    ...(wallClock ? { wallClock } : {}),
  })
  const record = simWorkerRecord(engine, { workerId: parsed.workerId ?? `${hostname()}:${process.pid}` })
  const linkOptions: LinkWorkerOptions = {
    ...moreOfLink,
    join: parsed.join,
    record,
    settings: simWorkerSettings(engine),
    handler: engine.handler,
    kvEvents: engine.kvEvents,
    load: () => engine.load(),
    drainTimeoutMs: parsed.drainTimeoutMs,
    clock,
    random,
    logger,
    ...(parsed.token === undefined ? {} : { token: parsed.token }),
    ...(parsed.tls === undefined ? {} : { tls: parsed.tls }),
  }
  const link = new LinkWorker(linkOptions)
  link.start()
  const close = async () => {
    await link.close()
    engine.destroy()
  }
  return {
    record,
    engine,
    joined: link.joined,
    drain: () => link.drain(),
    close,
    destroy: () => {
      link.destroy()
      engine.destroy()
    },
    [Symbol.asyncDispose]: close,
  }
}
