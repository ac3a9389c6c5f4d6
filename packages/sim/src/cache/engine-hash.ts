import { xxh3 } from '@node-rs/xxhash'

/**
 * The engine's own name for a chain of blocks: XXH3 of the parent's hash and this block's tokens, under a seed that is new
 * for every instance. Nothing outside may rely on how it is made, and a router that did would see other numbers at each start.
 */
export class EngineHash {
  readonly #bytes: Uint8Array
  readonly #parent: BigUint64Array
  readonly #tokens: Uint32Array
  readonly #seed: bigint

  constructor(blockSizeTokens: number, instanceId: string) {
    const buffer = new ArrayBuffer(8 + 4 * blockSizeTokens)
    this.#bytes = new Uint8Array(buffer)
    this.#parent = new BigUint64Array(buffer, 0, 1)
    this.#tokens = new Uint32Array(buffer, 8)
    this.#seed = xxh3.xxh64(instanceId)
  }

  /** @param tokens exactly one block's; @param parent undefined at the head of a chain */
  chain(parent: bigint | undefined, tokens: Uint32Array): bigint {
    this.#parent[0] = parent ?? 0n
    this.#tokens.set(tokens)
    return xxh3.xxh64(this.#bytes, this.#seed)
  }
}
