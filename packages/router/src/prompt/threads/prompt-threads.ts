import { availableParallelism } from 'node:os'
import { type Logger, silentLogger } from '@infera/fleet'
import { xxh32 } from '@node-rs/xxhash'
import type { InferencePath } from '../prompt-model.js'
import { notTokenizable } from '../tokenizer.js'
import { startThread } from './start-thread.js'
import type { ThreadData, ThreadModel } from './thread-messages.js'
import {
  type ThreadEnd,
  type ThreadOutcome,
  type ThreadWorker,
  TokenizingThread,
} from './tokenizing-thread.js'

export interface PromptThreadsOptions {
  /** Each thread loads those that it is asked for, and keeps them: a model takes its memory once for each thread. */
  readonly models: readonly ThreadModel[]
  /** Threads at most, > 0; default one on one or two cores, else half of the cores, at most 4. */
  readonly threadsMax?: number
  /** Jobs that wait or run, > 0; default 256. Beyond it `tokenize` takes none. */
  readonly queueMax?: number
  /** Bytes of the bodies of those jobs, > 0; default 256 Mi. */
  readonly queueBytesMax?: number
  readonly logger?: Logger
  /** Time in ms that never goes back; default `performance.now`. */
  readonly now?: () => number
  /** How a thread is started; default on the module that comes along. */
  readonly start?: (data: ThreadData) => ThreadWorker
}

/** A thread that has this many more jobs than another is not preferred to it: by then a cold cache is the lesser wait. */
const jobsBehindMax = 3
/** The beginning of a body that tells conversations apart: the model, the system prompt, and with luck the first message. */
const stickyBytes = 1024
/** Threads that end in a row without an answer, until the next one is kept waiting. */
const uselessEndsMax = 8
const restMs = 60_000

/** One place for a thread: empty until it is needed, and again when its thread ended. */
interface Slot {
  thread: TokenizingThread | undefined
  uselessEnds: number
  restsUntilMs: number
}

/**
 * Threads that render and tokenize prompts, so that long ones hold nobody else up. A conversation goes to the same thread
 * each time, whose memory of its messages is then warm. Nothing is started before it is needed, and an idle thread does not
 * hold the process open.
 */
export class PromptThreads {
  readonly #data: ThreadData
  readonly #queueMax: number
  readonly #queueBytesMax: number
  readonly #logger: Logger
  readonly #now: () => number
  readonly #start: (data: ThreadData) => ThreadWorker
  readonly #slots: readonly Slot[]
  #hasRun = false
  #canRun = true
  #closed: Promise<void> | undefined

  constructor(options: PromptThreadsOptions) {
    this.#data = { models: options.models }
    this.#queueMax = options.queueMax ?? 256
    this.#queueBytesMax = options.queueBytesMax ?? 256 * 1024 * 1024
    this.#logger = options.logger ?? silentLogger
    this.#now = options.now ?? (() => performance.now())
    this.#start = options.start ?? startThread
    const length = options.threadsMax ?? defaultThreadsMax(availableParallelism())
    this.#slots = Array.from({ length }, () => ({ thread: undefined, uselessEnds: 0, restsUntilMs: 0 }))
  }

  /** False once the first thread could not even start, as where a bundler left its file behind: the caller must do without. */
  get canRun(): boolean {
    return this.#canRun
  }

  /** Jobs that wait or run. */
  get jobCount(): number {
    return this.#slots.reduce((sum, { thread }) => sum + (thread?.jobCount ?? 0), 0)
  }

  /**
   * Tokenizes all prompts of a body.
   * @param job.model one of the models that were given
   * @param job.rawBody copied
   * @returns undefined when too much waits already; else what never rejects
   */
  tokenize(job: {
    model: string
    path: InferencePath
    rawBody: Uint8Array
  }): Promise<ThreadOutcome> | undefined {
    if (this.#closed) return failed('the router that it was for is closed')
    const queuedBytes = this.#slots.reduce((sum, { thread }) => sum + (thread?.queuedBytes ?? 0), 0)
    if (this.jobCount >= this.#queueMax) return undefined
    if (queuedBytes + job.rawBody.length > this.#queueBytesMax) return undefined
    const slot = this.#pick(job.model, job.rawBody)
    if (!slot) return failed('the threads that tokenize end before they answer')
    slot.thread ??= this.#begin(slot)
    if (!slot.thread) return failed('no thread can be started')
    return slot.thread.tokenize(job)
  }

  /** Ends all threads; what they have not answered fails. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= Promise.all(this.#slots.map(({ thread }) => thread?.close())).then(() => {})
    return this.#closed
  }

  /** Its own slot, unless another has much less to do. */
  #pick(model: string, rawBody: Uint8Array): Slot | undefined {
    const now = this.#now()
    const open = this.#slots.filter(({ thread, restsUntilMs }) => thread || restsUntilMs <= now)
    const jobsOf = ({ thread }: Slot) => thread?.jobCount ?? 0
    const idlest = open.reduce<Slot | undefined>(
      (least, slot) => (least && jobsOf(least) <= jobsOf(slot) ? least : slot),
      undefined,
    )
    const own = this.#slots[stickyHash(model, rawBody) % this.#slots.length]
    if (!own || !idlest || !open.includes(own)) return idlest
    return jobsOf(own) - jobsOf(idlest) > jobsBehindMax ? idlest : own
  }

  #begin(slot: Slot): TokenizingThread | undefined {
    try {
      return new TokenizingThread(this.#start(this.#data), (end) => this.#ended(slot, end))
    } catch (error) {
      this.#ended(slot, { wasReady: false, wasUseful: false, error })
      return undefined
    }
  }

  #ended(slot: Slot, { wasReady, wasUseful, error }: ThreadEnd): void {
    slot.thread = undefined
    slot.uselessEnds = wasUseful ? 0 : slot.uselessEnds + 1
    if (slot.uselessEnds >= uselessEndsMax) {
      slot.uselessEnds = 0
      slot.restsUntilMs = this.#now() + restMs
    }
    this.#hasRun ||= wasReady || this.#slots.some(({ thread }) => thread?.wasReady)
    if (this.#hasRun) {
      // What an error says may quote a prompt, so it is not logged.
      const name = error instanceof Error ? error.name : typeof error
      this.#logger.warn(
        { error: name },
        'a thread that tokenizes ended: its requests go without cache locality',
      )
      return
    }
    this.#canRun = false
    const reason = error instanceof Error ? error.message : String(error)
    this.#logger.warn({ error: reason }, 'threads cannot be started: long prompts hold up the event loop')
  }
}

/** @param cores > 0 */
function defaultThreadsMax(cores: number): number {
  return cores <= 2 ? 1 : Math.min(4, Math.floor(cores / 2))
}

function stickyHash(model: string, rawBody: Uint8Array): number {
  return xxh32(Buffer.concat([Buffer.from(model), rawBody.subarray(0, stickyBytes)]))
}

function failed(reason: string): Promise<ThreadOutcome> {
  return Promise.resolve({ error: notTokenizable(`the prompt was not tokenized: ${reason}`) })
}
