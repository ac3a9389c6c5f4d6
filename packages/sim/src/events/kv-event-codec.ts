import { encode } from '@msgpack/msgpack'

/*
 * The batches that vLLM publishes (tagged maps inside an array), msgpack:
 *
 *   batch   = [ts: float seconds, [event...], rank: int]
 *   stored  = {type: "BlockStored", block_hashes: u64[], parent_block_hash: u64 | nil, token_ids: int[], block_size: int,
 *              lora_id: nil, medium: "GPU", lora_name: nil, extra_keys: nil, group_idx: 0,
 *              kv_cache_spec_kind: "full_attention", kv_cache_spec_sliding_window: nil}
 *   removed = {type: "BlockRemoved", block_hashes: u64[], medium: "GPU", group_idx: 0}
 *
 * `token_ids` are those of all blocks of the event, one after the other. All keys are always there: readers of some versions
 * reject a map that lacks one.
 */

export interface StoredEvent {
  readonly type: 'stored'
  readonly hashes: bigint[]
  /** undefined at the head of a chain */
  readonly parent: bigint | undefined
  readonly tokens: number[]
}

export interface RemovedEvent {
  readonly type: 'removed'
  readonly hashes: bigint[]
}

export type CacheEvent = StoredEvent | RemovedEvent

const medium = 'GPU'
/** Names of the fields and values around the hashes and tokens of one event; a generous estimate. */
const eventOverheadBytes = 256
/** A hash, and a token id, at most. */
const hashBytes = 9
const tokenBytes = 5

/** @param atSeconds wall-clock time */
export function encodeBatch(
  events: readonly CacheEvent[],
  options: { atSeconds: number; rank: number; blockSizeTokens: number },
): Uint8Array {
  const wire = events.map((event) =>
    event.type === 'stored' ? storedMap(event, options.blockSizeTokens) : removedMap(event),
  )
  return encode([options.atSeconds, wire, options.rank], { useBigInt64: true })
}

/** Upper bound of what a stored event with that many blocks takes, bytes. */
export function storedEventBytes(blocks: number, blockSizeTokens: number): number {
  return eventOverheadBytes + blocks * (hashBytes + tokenBytes * blockSizeTokens)
}

function storedMap(event: StoredEvent, blockSizeTokens: number) {
  return {
    type: 'BlockStored',
    block_hashes: event.hashes,
    parent_block_hash: event.parent ?? null,
    token_ids: event.tokens,
    block_size: blockSizeTokens,
    lora_id: null,
    medium,
    lora_name: null,
    extra_keys: null,
    group_idx: 0,
    kv_cache_spec_kind: 'full_attention',
    kv_cache_spec_sliding_window: null,
  }
}

function removedMap(event: RemovedEvent) {
  return { type: 'BlockRemoved', block_hashes: event.hashes, medium, group_idx: 0 }
}
