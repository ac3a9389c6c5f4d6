import { PromptError } from '../../errors.js'
import type { InferencePath } from '../prompt-model.js'
import { notTokenizable } from '../tokenizer.js'
import type { ThreadFault, ThreadJob, ThreadReply } from './thread-messages.js'

/** What is needed of a `node:worker_threads` Worker. */
export interface ThreadWorker {
  on(event: 'message', listener: (reply: ThreadReply) => void): unknown
  on(event: 'error', listener: (error: unknown) => void): unknown
  on(event: 'exit', listener: () => void): unknown
  postMessage(job: ThreadJob, transfer: readonly ArrayBuffer[]): void
  ref(): void
  unref(): void
  terminate(): Promise<unknown>
}

/** Token ids of each prompt of a request, or why there are none. */
export type ThreadOutcome = { readonly prompts: readonly Uint32Array[] } | { readonly error: Error }

/** How a thread ended. */
export interface ThreadEnd {
  /** Whether it ever took jobs. */
  readonly wasReady: boolean
  /** Whether it answered any job. */
  readonly wasUseful: boolean
  readonly error: unknown
}

interface PendingJob {
  readonly sizeBytes: number
  readonly settle: (outcome: ThreadOutcome) => void
}

/** One thread and what it was given to do. It holds the process open while it has something to do, and only then. */
export class TokenizingThread {
  readonly #worker: ThreadWorker
  readonly #pending = new Map<number, PendingJob>()
  readonly #onEnd: (end: ThreadEnd) => void
  #nextId = 0
  #queuedBytes = 0
  #wasReady = false
  #wasUseful = false
  #hasEnded = false
  #error: unknown

  /** @param onEnd called once, when it has ended otherwise than by `close`, with its jobs settled */
  constructor(worker: ThreadWorker, onEnd: (end: ThreadEnd) => void) {
    this.#worker = worker
    this.#onEnd = onEnd
    worker.on('message', (reply) => this.#take(reply))
    worker.on('error', (error) => {
      this.#error = error // `exit` follows
    })
    worker.on('exit', () => this.#end())
    worker.unref()
  }

  get wasReady(): boolean {
    return this.#wasReady
  }

  get jobCount(): number {
    return this.#pending.size
  }

  /** Bytes of the bodies that it has not answered. */
  get queuedBytes(): number {
    return this.#queuedBytes
  }

  /** @param job.rawBody copied; the caller keeps its own */
  tokenize(job: { model: string; path: InferencePath; rawBody: Uint8Array }): Promise<ThreadOutcome> {
    const rawBody = new Uint8Array(job.rawBody)
    const id = this.#nextId++
    return new Promise((settle) => {
      if (this.#pending.size === 0) this.#worker.ref()
      this.#pending.set(id, { sizeBytes: rawBody.length, settle })
      this.#queuedBytes += rawBody.length
      this.#worker.postMessage({ ...job, id, rawBody }, [rawBody.buffer])
    })
  }

  /** Ends it now; what it has not answered fails. */
  async close(): Promise<void> {
    this.#hasEnded = true
    this.#failAll('the router that it was for is closed')
    await this.#worker.terminate()
  }

  #take(reply: ThreadReply): void {
    if (reply.type === 'ready') {
      this.#wasReady = true
      return
    }
    const job = this.#pending.get(reply.id)
    if (!job) return // it was failed already
    this.#pending.delete(reply.id)
    this.#queuedBytes -= job.sizeBytes
    if (this.#pending.size === 0) this.#worker.unref()
    this.#wasUseful = true
    job.settle(reply.type === 'tokens' ? { prompts: reply.prompts } : { error: errorOf(reply.fault) })
  }

  #end(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#failAll('the thread that it was given to has ended')
    this.#onEnd({ wasReady: this.#wasReady, wasUseful: this.#wasUseful, error: this.#error })
  }

  #failAll(reason: string): void {
    for (const { settle } of this.#pending.values())
      settle({ error: notTokenizable(`the prompt was not tokenized: ${reason}`) })
    this.#pending.clear()
    this.#queuedBytes = 0
  }
}

function errorOf({ name, code, message }: ThreadFault): Error {
  if (code !== undefined) return new PromptError(code, message)
  const error = new Error(message)
  error.name = name
  return error
}
