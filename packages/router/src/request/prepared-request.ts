import { chainBlockHashes } from '@infera/native'
import type { InferenceBody, InferencePath } from '../prompt/prompt-model.js'
import { type CacheHints, parseCacheHints } from '../scheduling/cache-hints.js'
import { imageKeysOf } from '../scheduling/image-keys.js'
import type { Role } from '../scheduling/policy.js'
import { checkInference } from './check-inference.js'
import type { ModelPrompts, PromptBook, PromptOutcome, TokenlessReason } from './prompt-book.js'
import { promptParent } from './prompt-identity.js'
import type { RouteRequest } from './route-request.js'

const noHashes: readonly BigUint64Array[] = []

/** A request that was checked, and what was found out about it so far. Whatever is costly is done on first use, once. */
export class PreparedRequest {
  readonly path: InferencePath
  readonly body: InferenceBody
  readonly model: string
  /** The model that serves it; another one than asked for where that is an adapter of it. */
  readonly servedModel: string
  readonly role: Role
  readonly isStream: boolean
  readonly prompts: ModelPrompts
  readonly #rawBody: Uint8Array | undefined
  readonly #adapter: string | undefined
  #parent: bigint | undefined
  #hints: CacheHints | undefined
  #imageKeys: readonly bigint[] | undefined
  #tokens: PromptOutcome | undefined
  readonly #hashesBySize = new Map<number, readonly BigUint64Array[]>()

  /** @throws InvalidRequestError */
  constructor(request: RouteRequest, prompts: PromptBook) {
    const { path, body, role = 'mixed', rawBody } = request
    const { model, isStream } = checkInference(path, body)
    this.path = path
    this.body = body
    this.role = role
    this.model = model
    this.isStream = isStream
    const base = prompts.baseOf(model)
    this.#adapter = base === undefined ? undefined : model
    this.servedModel = base ?? model
    this.prompts = prompts.of(this.servedModel)
    this.#rawBody = rawBody
  }

  get hints(): CacheHints {
    this.#hints ??= parseCacheHints(this.body)
    return this.#hints
  }

  get imageKeys(): readonly bigint[] {
    this.#imageKeys ??= this.hints.isMultimodal ? imageKeysOf(this.body) : []
    return this.#imageKeys
  }

  /** Whether `readPrompt` has been done. */
  get isPromptRead(): boolean {
    return this.#tokens !== undefined
  }

  /** Tokenizes: a short prompt at once, a long one on a thread of its own. Never rejects. */
  readPrompt(): Promise<void> | undefined {
    if (this.#tokens !== undefined) return undefined
    const tokens = this.prompts.tokenize(this.path, this.body, this.#rawBody)
    if (!(tokens instanceof Promise)) {
      this.#tokens = tokens
      return undefined
    }
    return tokens.then((outcome) => {
      this.#tokens ??= outcome
    })
  }

  /** Why there are no tokens; undefined when there are, and before the prompt is read. */
  get tokenlessReason(): TokenlessReason | undefined {
    return typeof this.#tokens === 'string' ? this.#tokens : undefined
  }

  /** Tokens of all its prompts; undefined when they are not known. */
  get promptTokens(): number | undefined {
    if (typeof this.#tokens !== 'object') return undefined
    return this.#tokens.reduce((sum, { length }) => sum + length, 0)
  }

  /**
   * Chained hashes of the full blocks of each of its prompts; none when they are not known as tokens. A batch has several.
   * @param blockSizeTokens > 0
   */
  hashes(blockSizeTokens: number): readonly BigUint64Array[] {
    if (typeof this.#tokens !== 'object') return noHashes
    let hashes = this.#hashesBySize.get(blockSizeTokens)
    if (!hashes) {
      this.#parent ??= promptParent(this.body, this.#adapter)
      const parent = this.#parent
      hashes = this.#tokens.map((tokens) => chainBlockHashes(tokens, blockSizeTokens, parent))
      this.#hashesBySize.set(blockSizeTokens, hashes)
    }
    return hashes
  }
}
