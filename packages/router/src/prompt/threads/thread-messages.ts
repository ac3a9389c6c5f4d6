// What a router and the threads that tokenize for it say to each other. Both are of one build, so nothing here is versioned.
import type { PromptError } from '../../errors.js'
import type { LoadPromptModelOptions } from '../load-prompt-model.js'
import type { InferencePath } from '../prompt-model.js'

/** A model that threads load by themselves, each when it first needs it. */
export interface ThreadModel {
  readonly name: string
  readonly folder: string
  /** What the folder must hold still; undefined: whatever it holds. */
  readonly tokenizerDigest?: string
  /** A function cannot go to a thread, so its clock is the system's. */
  readonly options?: Omit<LoadPromptModelOptions, 'now'>
}

/** What a thread is started with. */
export interface ThreadData {
  readonly models: readonly ThreadModel[]
}

/** One request's prompts to be tokenized. */
export interface ThreadJob {
  readonly id: number
  readonly model: string
  readonly path: InferencePath
  readonly rawBody: Uint8Array
}

/** An error as it crosses threads. */
export interface ThreadFault {
  readonly name: string
  /** Undefined for what is no PromptError. */
  readonly code: PromptError['code'] | undefined
  readonly message: string
}

/** `ready` once, when the thread takes jobs; then one answer for each job. */
export type ThreadReply =
  | { readonly type: 'ready' }
  | { readonly type: 'tokens'; readonly id: number; readonly prompts: readonly Uint32Array[] }
  | { readonly type: 'failed'; readonly id: number; readonly fault: ThreadFault }
