import { decode } from '@msgpack/msgpack'

interface StoredMap {
  readonly type: 'BlockStored'
  readonly block_hashes: bigint[]
  readonly parent_block_hash: bigint | null
  readonly token_ids: number[]
  readonly block_size: number
}

interface RemovedMap {
  readonly type: 'BlockRemoved'
  readonly block_hashes: bigint[]
}

/** A reader of KV events that knows nothing of the engine. It insists on parents coming first. */
export class CacheMirror {
  /** Tokens of each cached block, by the engine's hash. */
  readonly blocks = new Map<bigint, readonly number[]>()
  readonly #parents = new Map<bigint, bigint | null>()

  /** All tokens from the head of the chain to the end of this block. */
  tokensUpTo(hash: bigint): number[] {
    const parent = this.#parents.get(hash) ?? null
    return [...(parent === null ? [] : this.tokensUpTo(parent)), ...(this.blocks.get(hash) ?? [])]
  }

  apply(payload: Uint8Array): void {
    const [, events] = decode(payload, { useBigInt64: true }) as [number, (StoredMap | RemovedMap)[], number]
    for (const event of events) {
      if (event.type === 'BlockRemoved') {
        for (const hash of event.block_hashes) {
          if (!this.blocks.delete(hash)) throw new Error(`removed block ${hash} was never stored`)
        }
        continue
      }
      const { parent_block_hash: parent, block_size: size, token_ids: tokens } = event
      if (parent !== null && !this.blocks.has(parent)) throw new Error(`unknown parent ${parent}`)
      if (tokens.length !== size * event.block_hashes.length) throw new Error('tokens do not fill the blocks')
      event.block_hashes.forEach((hash, index) => {
        if (this.blocks.has(hash)) throw new Error(`block ${hash} stored twice`)
        this.#parents.set(hash, event.block_hashes[index - 1] ?? parent)
        this.blocks.set(hash, tokens.slice(index * size, (index + 1) * size))
      })
    }
  }
}
