// KV events by what they mean, and their encodings in all shapes that engines use (arrays, maps, hashes as integers or
// bytes, tokens alone or in pairs).
import { encode } from '@msgpack/msgpack'
import fc from 'fast-check'

interface Placed {
  readonly hashes: readonly bigint[]
  readonly medium: string | null
  readonly groupIndex: number | null
  /** Which field says REMOTE, if any; only maps have them. */
  readonly remoteBy: 'locality' | 'ownership' | null
}

/** One of the extra keys of a block's hash: a name, a number, an image with its place, a digest. */
export type ExtraKey = string | number | bigint | Uint8Array | readonly ExtraKey[]

/** Whose blocks they are, as the engine says it. */
export interface Identity {
  readonly lora: string | null
  readonly loraId: number | null
  readonly salt: string | null
  /** A list per block; null: the engine says nothing of extra keys. */
  readonly extraKeys: readonly (readonly ExtraKey[] | null)[] | null
}

export const noIdentity: Identity = { lora: null, loraId: null, salt: null, extraKeys: null }

export interface StoredEvent extends Placed {
  readonly type: 'stored'
  readonly parent: bigint | null
  readonly tokens: readonly number[]
  readonly blockSize: number | null
  readonly groupKind: string | null
  /** Default: nobody's. */
  readonly identity?: Identity
}

export interface RemovedEvent extends Placed {
  readonly type: 'removed'
}

export type WireEvent =
  | StoredEvent
  | RemovedEvent
  | { readonly type: 'cleared' }
  | { readonly type: 'unknown' }
  | { readonly type: 'bad'; readonly event: unknown }

/** How to encode a batch; each event takes the next of the choices. */
export interface WireShape {
  readonly isMapBatch: boolean
  readonly areMaps: readonly boolean[]
  readonly hashForms: readonly ('number' | 'unsigned' | 'signed' | 'bytes' | 'shortBytes')[]
  readonly hasPairs: boolean
  /** Extra fields at the end of arrays and within maps. */
  readonly isLong: boolean
}

export const wireShapeArb: fc.Arbitrary<WireShape> = fc.record({
  isMapBatch: fc.boolean(),
  areMaps: fc.array(fc.boolean(), { minLength: 1, maxLength: 3 }),
  hashForms: fc.array(fc.constantFrom('number', 'unsigned', 'signed', 'bytes', 'shortBytes'), {
    minLength: 1,
    maxLength: 3,
  }),
  hasPairs: fc.boolean(),
  isLong: fc.boolean(),
})

export const plainShape: WireShape = {
  isMapBatch: false,
  areMaps: [false],
  hashForms: ['unsigned'],
  hasPairs: false,
  isLong: false,
}

/** One payload, as a transport would hand it over. */
export function encodeBatch(events: readonly WireEvent[], shape: WireShape = plainShape): Uint8Array {
  const encoded = events.map((event, place) => encodeEvent(event, shape, place))
  const batch = shape.isMapBatch
    ? { ts: 1.5, later: [{ a: 1 }], events: encoded, data_parallel_rank: null }
    : [1.5, encoded, ...(shape.isLong ? [3, 'later'] : [])]
  return encode(batch, { useBigInt64: true })
}

function encodeEvent(event: WireEvent, shape: WireShape, place: number): unknown {
  const isMap = shape.areMaps[place % shape.areMaps.length] === true
  if (event.type === 'bad') return event.event
  if (event.type === 'cleared') return isMap ? { type: 'AllBlocksCleared' } : ['AllBlocksCleared']
  if (event.type === 'unknown')
    return isMap ? { type: 'BlockMoved', block_hashes: 7 } : ['BlockMoved', [1], 'x']
  const hash = (value: bigint, at: number) => encodeHash(value, shape.hashForms[at % shape.hashForms.length]!)
  const block_hashes = event.hashes.map((value, at) => hash(value, at))
  const { medium, groupIndex, remoteBy } = event
  if (event.type === 'removed') {
    if (!isMap && remoteBy === null) return ['BlockRemoved', block_hashes, medium, groupIndex]
    return { ...remote(remoteBy), group_idx: groupIndex, block_hashes, medium, type: 'BlockRemoved' }
  }
  const token_ids = shape.hasPairs
    ? event.tokens.map((token, at) => [token, event.tokens[at + 1] ?? 0])
    : [...event.tokens]
  const parent_block_hash = event.parent === null ? null : hash(event.parent, place)
  const { lora, loraId, salt, extraKeys } = event.identity ?? noIdentity
  // Arrays have one position for both.
  const saysBoth = lora !== null && salt !== null
  if (!isMap && remoteBy === null && !saysBoth) {
    const { blockSize, groupKind } = event
    const fields = ['BlockStored', block_hashes, parent_block_hash, token_ids, blockSize, loraId, medium]
    const shared = salt === null ? (lora ?? (shape.isLong ? 7 : null)) : { later: [1], cache_salt: salt }
    return [
      ...fields,
      shared,
      extraKeys ?? (shape.isLong ? 'full' : null),
      groupIndex,
      groupKind,
      ...(shape.isLong ? [null, { z: 1 }, -7] : []),
    ]
  }
  return {
    type: 'BlockStored',
    ...(shape.isLong ? { session_id: 'x', block_mm_infos: [null, [{ deep: [[1]] }]] } : {}),
    ...(salt !== null || shape.isLong ? { cache_salt: salt } : {}),
    extra_keys: extraKeys,
    lora_name: lora,
    token_ids,
    ...remote(remoteBy),
    block_hashes,
    parent_block_hash,
    block_size: event.blockSize,
    lora_id: loraId,
    medium,
    group_idx: groupIndex,
    kv_cache_spec_kind: event.groupKind,
  }
}

function remote(field: 'locality' | 'ownership' | null): Record<string, string> {
  return field === null ? {} : { locality: 'LOCAL', ownership: 'LOCAL', [field]: 'REMOTE' }
}

function encodeHash(value: bigint, form: WireShape['hashForms'][number]): unknown {
  if (form === 'number') return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value
  if (form === 'signed') return BigInt.asIntN(64, value)
  if (form === 'unsigned') return value
  const bytes = Buffer.alloc(form === 'bytes' ? 32 : 8, 0xab)
  bytes.writeBigUInt64BE(value, bytes.length - 8)
  return Uint8Array.from(bytes)
}
