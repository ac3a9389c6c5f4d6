import { chainBlockHashes } from '@infera/native'
import type { InferenceBody, InferencePath } from '../prompt/prompt-model.js'
import { type CacheHints, parseCacheHints } from '../scheduling/cache-hints.js'
import { imageKeysOf } from '../scheduling/image-keys.js'
import type { Role } from '../scheduling/policy.js'
import { checkInference } from './check-inference.js'
import type { ModelPrompts, PromptBook, TokenlessReason } from './prompt-book.js'
import type { RouteRequest } from './route-request.js'

const noHashes = new BigUint64Array(0)

/** A request that was checked, and what was found out about it so far. Whatever is costly is done on first use, once. */
export class PreparedRequest {
  readonly path: InferencePath
  readonly body: InferenceBody
  readonly model: string
  readonly role: Role
  readonly isStream: boolean
  readonly prompts: ModelPrompts
  #hints: CacheHints | undefined
  #imageKeys: readonly bigint[] | undefined
  #tokens: Uint32Array | TokenlessReason | undefined
  readonly #hashesBySize = new Map<number, BigUint64Array>()

  /** @throws InvalidRequestError */
  constructor({ path, body, role = 'mixed' }: RouteRequest, prompts: PromptBook) {
    const { model, isStream } = checkInference(path, body)
    this.path = path
    this.body = body
    this.role = role
    this.model = model
    this.isStream = isStream
    this.prompts = prompts.of(model)
  }

  get hints(): CacheHints {
    this.#hints ??= parseCacheHints(this.body)
    return this.#hints
  }

  get imageKeys(): readonly bigint[] {
    this.#imageKeys ??= this.hints.isMultimodal ? imageKeysOf(this.body) : []
    return this.#imageKeys
  }

  /** Why there are no tokens; undefined when there are. Tokenizes. */
  get tokenlessReason(): TokenlessReason | undefined {
    this.#tokens ??= this.prompts.tokenize(this.path, this.body)
    return typeof this.#tokens === 'string' ? this.#tokens : undefined
  }

  /** Chained hashes of the prompt's full blocks; none when the prompt is not known as tokens. Tokenizes. */
  hashes(blockSizeTokens: number): BigUint64Array {
    if (this.tokenlessReason !== undefined) return noHashes
    let hashes = this.#hashesBySize.get(blockSizeTokens)
    if (!hashes) {
      hashes = chainBlockHashes(this.#tokens as Uint32Array, blockSizeTokens)
      this.#hashesBySize.set(blockSizeTokens, hashes)
    }
    return hashes
  }
}
