// Batches of KV events as engines publish them (msgpack):
//
//   batch  = [timestamp, [event, ...], rank?]                 or the map {ts, events, data_parallel_rank}
//   event  = [tag, field, field, ...]                         or the map {type: tag, name: value, ...}
//   tag    = "BlockStored" | "BlockRemoved" | "AllBlocksCleared"
//
// Engines changed from arrays to maps one by one and at different versions, so each batch and each event is read as what
// it is, whichever engine sent it. Fields that are absent are nil; fields and tags that are not known are passed over. Of
// a field that comes twice in a map, the last counts. `cpp/core/kv_event_decoder.h` states the same rules.
import { type Tier, tiers } from '../ports.js'
import { chainParentOf, markOf } from './chain-identity.js'
import { tierOfMedium } from './media.js'
import { MsgpackError, MsgpackReader } from './msgpack-reader.js'

/** Whether a cache group holds prefix blocks, as far as the engine says what kind it is. */
export type GroupKind = 'unstated' | 'prefix' | 'other'

interface Placed {
  /** The device where the engine does not say; null for a medium that nobody here knows. */
  readonly tier: Tier | null
  readonly groupIndex: number | null
  /** Engine hashes as u64: negative integers as two's complement, byte strings by their last 8 bytes, big-endian. */
  readonly blockHashes: BigUint64Array
}

export interface BlockStored extends Placed {
  readonly type: 'blockStored'
  /** Engine hash of the block before these; null at the start of a prompt. */
  readonly parentHash: bigint | null
  readonly tokens: Uint32Array
  /** As the engine says; null where it does not. */
  readonly blockSizeTokens: number | null
  readonly groupKind: GroupKind
  /** Where the chain begins when it has no parent: that of its LoRA adapter and salt. */
  readonly chainParent: bigint
  /** One per list of extra keys, 0 where it says nothing but the adapter; empty where none of them does. */
  readonly marks: BigUint64Array
}

export interface BlockRemoved extends Placed {
  readonly type: 'blockRemoved'
}

export type KvEvent = BlockStored | BlockRemoved | { readonly type: 'allBlocksCleared' }

export interface DecodedKvBatch {
  /** In order. Empty when the batch is malformed. */
  readonly events: readonly KvEvent[]
  /** Events of tags that nobody here knows. */
  readonly unknownTagCount: number
  /** Events of known tags with fields that cannot be used, as a token id of 2^32 or more. */
  readonly badEventCount: number
  /** The payload as a whole could not be read. */
  readonly isMalformed: boolean
}

const fieldNames = [
  'block_hashes',
  'parent_block_hash',
  'token_ids',
  'block_size',
  'medium',
  'group_idx',
  'kv_cache_spec_kind',
  'locality',
  'ownership',
  'lora_name',
  'lora_id',
  'extra_keys',
  'cache_salt',
] as const
type FieldName = (typeof fieldNames)[number]

/** Byte positions of an event's fields. */
type Fields = Map<FieldName, number>

/** Fields of array events by position; position 0 is the tag. */
const storedFields: readonly (FieldName | undefined)[] = [
  undefined,
  'block_hashes',
  'parent_block_hash',
  'token_ids',
  'block_size',
  'lora_id',
  'medium',
  'lora_name', // or SGLang's metadata
  'extra_keys',
  'group_idx',
  'kv_cache_spec_kind',
]
const removedFields: readonly (FieldName | undefined)[] = [undefined, 'block_hashes', 'medium', 'group_idx']

const knownNames: ReadonlySet<string> = new Set(fieldNames)
/** Kinds of cache groups whose blocks are prefix blocks. */
const prefixGroupKinds: ReadonlySet<string> = new Set([
  'full_attention',
  'mla_attention',
  'sink_full_attention',
])
const nameBytesMax = 64
const payloadBytesMax = 2 ** 32 - 1

/** Reads one payload; one of 2^32 bytes or more is malformed. Never throws, whatever the bytes. */
export function decodeKvBatch(payload: Uint8Array): DecodedKvBatch {
  const events: KvEvent[] = []
  const counts = { unknownTagCount: 0, badEventCount: 0 }
  const reader = new MsgpackReader(payload)
  let starts: readonly number[]
  try {
    // The first pass only finds the events and their ends, so that a bad one is left out and the next one is found.
    starts = locateEvents(reader, payload.length)
  } catch (error) {
    if (!(error instanceof MsgpackError)) throw error
    return { events, ...counts, isMalformed: true }
  }
  for (const start of starts) {
    reader.at = start
    const event = decodeEvent(reader, counts)
    if (event) events.push(event)
  }
  return { events, ...counts, isMalformed: false }
}

function locateEvents(reader: MsgpackReader, sizeBytes: number): number[] {
  if (sizeBytes > payloadBytesMax) throw new MsgpackError('a payload of 2^32 bytes or more')
  let starts: number[] | undefined
  if (reader.peek() === 'map') {
    for (let rest = reader.mapLength(); rest > 0; rest--) {
      if (nameHere(reader) === 'events') starts = locateElements(reader)
      else reader.skip()
    }
  } else {
    const length = reader.arrayLength()
    if (length < 2) throw new MsgpackError('a batch has at least a timestamp and events')
    reader.skip()
    starts = locateElements(reader)
    for (let rest = length - 2; rest > 0; rest--) reader.skip()
  }
  if (starts === undefined) throw new MsgpackError('a batch without events')
  if (!reader.isAtEnd) throw new MsgpackError('bytes follow the batch')
  return starts
}

function locateElements(reader: MsgpackReader): number[] {
  const starts: number[] = []
  for (let rest = reader.arrayLength(); rest > 0; rest--) {
    starts.push(reader.at)
    reader.skip()
  }
  return starts
}

function decodeEvent(
  reader: MsgpackReader,
  counts: { unknownTagCount: number; badEventCount: number },
): KvEvent | undefined {
  try {
    const { tag, fields } = reader.peek() === 'map' ? mapFields(reader) : arrayFields(reader)
    if (tag === 'AllBlocksCleared') return { type: 'allBlocksCleared' }
    if (tag === 'BlockRemoved') return { type: 'blockRemoved', ...placed(reader, fields) }
    if (tag === 'BlockStored') return blockStored(reader, fields)
    counts.unknownTagCount += 1
  } catch (error) {
    if (!(error instanceof MsgpackError)) throw error
    counts.badEventCount += 1
  }
  return undefined
}

function mapFields(reader: MsgpackReader): { tag: string; fields: Fields } {
  const fields: Fields = new Map()
  let tag = ''
  for (let rest = reader.mapLength(); rest > 0; rest--) {
    const name = nameHere(reader)
    if (name === 'type') tag = nameHere(reader)
    else {
      if (knownNames.has(name)) fields.set(name as FieldName, reader.at)
      reader.skip()
    }
  }
  if (tag === '') throw new MsgpackError('event without a tag')
  return { tag, fields }
}

function arrayFields(reader: MsgpackReader): { tag: string; fields: Fields } {
  const fields: Fields = new Map()
  const length = reader.arrayLength()
  const tag = length > 0 ? nameHere(reader) : ''
  if (tag === '') throw new MsgpackError('event without a tag')
  const names = tag === 'BlockStored' ? storedFields : removedFields
  for (let position = 1; position < length; position++) {
    const name = names[position]
    if (name === 'lora_name' || name === 'extra_keys') locateShared(reader, fields, name)
    else if (name !== undefined) fields.set(name, reader.at)
    if (name !== 'lora_name' || reader.peek() !== 'map') reader.skip()
    else locateSalt(reader, fields)
  }
  return { tag, fields }
}

/** A position of array events that engines use in more than one way counts where its kind says which. */
function locateShared(reader: MsgpackReader, fields: Fields, name: 'lora_name' | 'extra_keys'): void {
  const kind = reader.peek()
  if (kind === (name === 'lora_name' ? 'string' : 'array')) fields.set(name, reader.at)
}

/** The salt within SGLang's metadata; passes over the map. */
function locateSalt(reader: MsgpackReader, fields: Fields): void {
  for (let rest = reader.mapLength(); rest > 0; rest--) {
    if (nameHere(reader) === 'cache_salt') fields.set('cache_salt', reader.at)
    reader.skip()
  }
}

/** The next value as a short string; empty, and passed over, when it is something else. */
function nameHere(reader: MsgpackReader): string {
  if (reader.peek() === 'string') return reader.shortString(nameBytesMax)
  reader.skip()
  return ''
}

function blockStored(reader: MsgpackReader, fields: Fields): BlockStored {
  // Nil is a chain's head. An event that says nothing of its parent must not pass for one.
  if (!fields.has('parent_block_hash')) throw new MsgpackError('stored blocks without a parent field')
  const parentHash = at(reader, fields, 'parent_block_hash', readHash)
  const tokens = at(reader, fields, 'token_ids', readTokens)
  if (tokens === null) throw new MsgpackError('stored blocks without tokens')
  return {
    type: 'blockStored',
    ...placed(reader, fields),
    parentHash,
    tokens,
    blockSizeTokens: at(reader, fields, 'block_size', (here) => here.smallInteger()),
    groupKind: groupKindOf(at(reader, fields, 'kv_cache_spec_kind', (here) => here.string())),
    ...identity(reader, fields, parentHash === null),
  }
}

const noBytes = new Uint8Array(0)
const noMarks = new BigUint64Array(0)

/** Whose blocks they are; `cpp/core/kv_event_decoder.h` states the rules. */
function identity(
  reader: MsgpackReader,
  fields: Fields,
  isHead: boolean,
): Pick<BlockStored, 'chainParent' | 'marks'> {
  const name = at(reader, fields, 'lora_name', (here) => here.stringBytes()) ?? noBytes
  const number = at(reader, fields, 'lora_id', (here) => here.smallInteger()) ?? 0
  const salt = at(reader, fields, 'cache_salt', (here) => here.stringBytes()) ?? noBytes
  const reading = { name, number, salt, isHead }
  const marks = at(reader, fields, 'extra_keys', (here) => readMarks(here, reading)) ?? noMarks
  if (!isHead) return { chainParent: 0n, marks }
  const adapter = name.length === 0 && number !== 0 ? Buffer.from(`#${number}`) : name
  return { chainParent: chainParentOf(adapter, reading.salt), marks }
}

interface IdentityReading {
  readonly name: Uint8Array
  /** Of the adapter; 0: none. */
  readonly number: number
  salt: Uint8Array
  readonly isHead: boolean
}

function readMarks(reader: MsgpackReader, reading: IdentityReading): BigUint64Array {
  const marks = new BigUint64Array(reader.arrayLength())
  let hasAny = false
  for (let index = 0; index < marks.length; index++) {
    const start = reader.at
    if (saysNothing(reader, reading, index === 0 && reading.isHead)) continue
    marks[index] = markOf(reader.since(start))
    hasAny = true
  }
  return hasAny ? marks : noMarks
}

/** Passes over one block's extra keys. What the first block of a prompt says may be its salt. */
function saysNothing(reader: MsgpackReader, reading: IdentityReading, isFirst: boolean): boolean {
  if (reader.peek() !== 'array') {
    const isNil = reader.peek() === 'nil'
    reader.skip()
    return isNil
  }
  let count = reader.arrayLength()
  if (count > 0 && passAdapter(reader, reading)) count--
  if (isFirst && count === 1 && reader.peek() === 'string') {
    const text = reader.stringBytes()
    if (reading.salt.length === 0) reading.salt = text
    return Buffer.compare(reading.salt, text) === 0
  }
  for (let rest = count; rest > 0; rest--) reader.skip()
  return count === 0
}

/** Whether the next value is the adapter, as one of the extra keys; passes over it then. */
function passAdapter(reader: MsgpackReader, { name, number }: IdentityReading): boolean {
  const start = reader.at
  const kind = reader.peek()
  if (kind === 'string' && name.length > 0 && Buffer.compare(reader.stringBytes(), name) === 0) return true
  reader.at = start
  if (kind === 'integer' && number !== 0 && smallIntegerOrNone(reader) === number) return true
  reader.at = start
  return false
}

/** Undefined, somewhere behind, for an integer that a number does not hold: sound, and no adapter's number. */
function smallIntegerOrNone(reader: MsgpackReader): number | undefined {
  try {
    return reader.smallInteger()
  } catch (error) {
    if (error instanceof MsgpackError) return undefined
    throw error
  }
}

function placed(reader: MsgpackReader, fields: Fields): Placed {
  const blockHashes = at(reader, fields, 'block_hashes', readHashes)
  if (blockHashes === null) throw new MsgpackError('event without block hashes')
  const medium = at(reader, fields, 'medium', (here) => here.string())
  const groupIndex = at(reader, fields, 'group_idx', (here) => here.smallInteger())
  // Where either says so, the blocks are not on the worker that reports them, whatever their medium there.
  const locality = at(reader, fields, 'locality', (here) => here.string())
  const ownership = at(reader, fields, 'ownership', (here) => here.string())
  const isRemote = locality === 'REMOTE' || ownership === 'REMOTE'
  return { tier: isRemote ? tiers.remote : tierOf(medium), groupIndex, blockHashes }
}

function tierOf(medium: string | null): Tier | null {
  return medium === null ? tiers.device : (tierOfMedium(medium) ?? null)
}

function groupKindOf(kind: string | null): GroupKind {
  if (kind === null) return 'unstated'
  return prefixGroupKinds.has(kind) ? 'prefix' : 'other'
}

/** A field's value; null when it is absent or nil. */
function at<T>(
  reader: MsgpackReader,
  fields: Fields,
  name: FieldName,
  read: (reader: MsgpackReader) => T,
): T | null {
  const position = fields.get(name)
  if (position === undefined) return null
  reader.at = position
  return reader.peek() === 'nil' ? null : read(reader)
}

function readHashes(reader: MsgpackReader): BigUint64Array {
  const hashes = new BigUint64Array(reader.arrayLength())
  for (let index = 0; index < hashes.length; index++) hashes[index] = readHash(reader)
  return hashes
}

function readHash(reader: MsgpackReader): bigint {
  if (reader.peek() !== 'binary') return reader.integerAsU64()
  const bytes = reader.binary()
  if (bytes.length === 0) throw new MsgpackError('a block hash of no bytes')
  // The last 8 bytes, big-endian, are what vLLM prints as the integer form of the same digest.
  let hash = 0n
  for (const byte of bytes.subarray(-8)) hash = (hash << 8n) | BigInt(byte)
  return hash
}

/** Token ids, or overlapping pairs of them (speculative decoding), whose first elements are the tokens. */
function readTokens(reader: MsgpackReader): Uint32Array {
  const tokens = new Uint32Array(reader.arrayLength())
  const arePairs = tokens.length > 0 && reader.peek() === 'array'
  for (let index = 0; index < tokens.length; index++) {
    const restOfPair = arePairs ? reader.arrayLength() - 1 : 0
    if (restOfPair < 0) throw new MsgpackError('a token pair of no tokens')
    const token = reader.smallInteger()
    if (token < 0 || token > 0xffff_ffff) throw new MsgpackError('a token id outside [0, 2^32)')
    tokens[index] = token
    for (let rest = restOfPair; rest > 0; rest--) reader.skip()
  }
  return tokens
}
