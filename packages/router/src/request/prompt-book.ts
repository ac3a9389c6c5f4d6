import type { Logger } from '@infera/fleet'
import { ModelFolderError, PromptError, type RouterErrorCode } from '../errors.js'
import type { SettingsSource } from '../live-options.js'
import type { ModelOptions } from '../options.js'
import { loadPromptModel } from '../prompt/load-prompt-model.js'
import type { InferenceBody, InferencePath, PromptModel } from '../prompt/prompt-model.js'
import { PromptThreads } from '../prompt/threads/prompt-threads.js'
import { tokenizeRawBody } from '../prompt/threads/raw-prompts.js'

/** Why a prompt is not known as tokens. */
export type TokenlessReason = 'no-tokenizer' | 'template-error' | 'not-tokenizable' | 'tokenizer-busy'

/** Tokens of each prompt of a request. */
export type PromptOutcome = readonly Uint32Array[] | TokenlessReason

/** How the prompts of a model fare, for operators. */
export interface PromptStatus {
  /** `failing`: the latest prompt whose template was rendered failed; `no-tokenizer`: the model's folder is not configured. */
  readonly state: 'ok' | 'no-tokenizer' | 'failing'
  /** Prompts since the start whose chat template failed. */
  readonly template_failures: number
  readonly last_error_code: RouterErrorCode | null
}

/** Where the prompts of long bodies are tokenized. */
export interface LongPrompts {
  readonly threads: PromptThreads
  readonly live: SettingsSource<'threadBytesMin'>
}

/** The prompts of one model and what became of them. */
export class ModelPrompts {
  readonly #modelName: string
  readonly #prompt: PromptModel | undefined
  readonly #logger: Logger
  readonly #longPrompts: LongPrompts | undefined
  #templateFailureCount = 0
  #lastErrorCode: RouterErrorCode | null = null
  #isFailing = false
  #hasSucceeded = false
  #hasWarned = false

  /** @param options.longPrompts where prompts of long bodies are tokenized; undefined: here, as all others */
  constructor(
    modelName: string,
    prompt: PromptModel | undefined,
    options: { logger: Logger; longPrompts?: LongPrompts | undefined },
  ) {
    this.#modelName = modelName
    this.#prompt = prompt
    this.#logger = options.logger
    this.#longPrompts = options.longPrompts
  }

  get status(): PromptStatus {
    return {
      state: this.#prompt === undefined ? 'no-tokenizer' : this.#isFailing ? 'failing' : 'ok',
      template_failures: this.#templateFailureCount,
      last_error_code: this.#lastErrorCode,
    }
  }

  get templateFailureCount(): number {
    return this.#templateFailureCount
  }

  /** A prompt went through, and the latest one did. Until then each is tried, needed or not, so that a broken template shows. */
  get isProven(): boolean {
    return this.#prompt === undefined || (this.#hasSucceeded && !this.#isFailing)
  }

  /**
   * Tokens of each prompt of a body, or why there are none: such requests are routed by load. Never throws, and never rejects.
   * @param rawBody the body's own text, which says more than the parsed body
   */
  tokenize(
    path: InferencePath,
    body: InferenceBody,
    rawBody: Uint8Array | undefined,
  ): PromptOutcome | Promise<PromptOutcome> {
    if (!this.#prompt) return 'no-tokenizer'
    const long = this.#longPrompts
    if (rawBody && long?.threads.canRun && rawBody.length >= long.live.settings.threadBytesMin)
      return this.#tokenizeOnThread(long.threads, path, rawBody)
    try {
      return this.#succeeded(
        rawBody === undefined
          ? this.#prompt.tokenizePrompts(path, body)
          : tokenizeRawBody(this.#prompt, path, rawBody),
      )
    } catch (error) {
      return this.#failed(error)
    }
  }

  #tokenizeOnThread(
    threads: PromptThreads,
    path: InferencePath,
    rawBody: Uint8Array,
  ): Promise<PromptOutcome> | TokenlessReason {
    const answer = threads.tokenize({ model: this.#modelName, path, rawBody })
    if (!answer) return 'tokenizer-busy'
    return answer.then((outcome) =>
      'prompts' in outcome ? this.#succeeded(outcome.prompts) : this.#failed(outcome.error),
    )
  }

  #succeeded(prompts: readonly Uint32Array[]): readonly Uint32Array[] {
    this.#hasSucceeded = true
    this.#isFailing = false
    return prompts
  }

  #failed(error: unknown): TokenlessReason {
    // What is not a PromptError is a fault of the prompt model; the request is none the worse for it.
    const code = error instanceof PromptError ? error.code : 'INFERA_ROUTER_TEMPLATE_FAILED'
    this.#lastErrorCode = code
    if (code !== 'INFERA_ROUTER_TEMPLATE_FAILED') return 'not-tokenizable'
    this.#templateFailureCount += 1
    this.#isFailing = true
    if (!this.#hasWarned) {
      this.#hasWarned = true
      // The error's text may quote the prompt, so it is not logged.
      this.#logger.warn(
        { model: this.#modelName, code, error: error instanceof Error ? error.name : typeof error },
        'the chat template failed: such requests are routed without cache locality',
      )
    }
    return 'template-error'
  }
}

/** As the name of a model: every model that is not named itself. */
export const anyModel = '*'

/** The models whose prompts this router was given. */
export class PromptBook {
  readonly #byModel = new Map<string, ModelPrompts>()
  /** Adapter -> the model that it belongs to. */
  readonly #bases = new Map<string, string>()
  readonly #logger: Logger
  readonly #live: SettingsSource<'threadBytesMin'> | undefined
  readonly #stranger: ModelPrompts
  #threads: PromptThreads | undefined

  /** @param options.live when long bodies go to threads, if their model is from a folder; undefined: never */
  constructor(logger: Logger, options: { live?: SettingsSource<'threadBytesMin'> } = {}) {
    this.#logger = logger
    this.#live = options.live
    this.#stranger = new ModelPrompts('', undefined, { logger })
  }

  get modelNames(): readonly string[] {
    return [...this.#byModel.keys()]
  }

  has(modelName: string): boolean {
    return modelName !== anyModel && this.#byModel.has(modelName)
  }

  /** The model that a name is an adapter of; undefined where it is none. */
  baseOf(adapter: string): string | undefined {
    return this.#bases.get(adapter)
  }

  /** Names of adapters of a model, in the order given. */
  adaptersOf(modelName: string): string[] {
    return [...this.#bases].filter(([, base]) => base === modelName).map(([adapter]) => adapter)
  }

  of(modelName: string): ModelPrompts {
    return this.#byModel.get(modelName) ?? this.#byModel.get(anyModel) ?? this.#stranger
  }

  /** @throws ModelFolderError naming the folder that cannot be used */
  async load(models: readonly ModelOptions[]): Promise<void> {
    const opened: { readonly model: ModelOptions; readonly prompt: PromptModel }[] = []
    for (const model of models)
      opened.push({ model, prompt: 'prompt' in model ? model.prompt : await loadFolder(model) })
    const logger = this.#logger
    const fromFolders = opened.flatMap(({ model, prompt: { tokenizerDigest } }) =>
      model.folder === undefined ? [] : [{ name: model.name, folder: model.folder, tokenizerDigest }],
    )
    const threads = new PromptThreads({ models: fromFolders, logger })
    this.#threads = threads
    const longPrompts = this.#live && { threads, live: this.#live }
    for (const { model, prompt } of opened) {
      const { name, adapters = [] } = model
      for (const adapter of adapters) this.#bases.set(adapter, name)
      const options = { logger, longPrompts: model.folder === undefined ? undefined : longPrompts }
      this.#byModel.set(name, new ModelPrompts(name, prompt, options))
    }
  }

  /** Ends the threads; prompts that they have not answered are not tokenizable. Idempotent. */
  async close(): Promise<void> {
    await this.#threads?.close()
  }
}

async function loadFolder({
  name,
  folder,
}: {
  readonly name: string
  readonly folder: string
}): Promise<PromptModel> {
  try {
    return await loadPromptModel(folder)
  } catch (error) {
    if (error instanceof ModelFolderError) throw error
    throw new ModelFolderError(`model '${name}' cannot be loaded from folder '${folder}'`, { cause: error })
  }
}
