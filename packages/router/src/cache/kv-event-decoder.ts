// Batches of KV events as engines publish them (msgpack):
//
//   batch  = [timestamp, [event, ...], rank?]                 or the map {ts, events, data_parallel_rank}
//   event  = [tag, field, field, ...]                         or the map {type: tag, name: value, ...}
//   tag    = "BlockStored" | "BlockRemoved" | "AllBlocksCleared"
//
// Engines changed from arrays to maps one by one and at different versions, so each batch and each event is read as what
// it is, whichever engine sent it. Fields that are absent are nil; fields and tags that are not known are passed over.
import { MsgpackError, MsgpackReader } from './msgpack-reader.js'

interface Placed {
  /** Storage tier; null where the engine does not say, which means its device. */
  readonly medium: string | null
  readonly groupIndex: number | null
  /** The blocks are not on the worker that reports them. */
  readonly isRemote: boolean
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
  /** Kind of cache group on hybrid models, as in `full_attention`; null where the engine does not say. */
  readonly groupKind: string | null
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
  undefined, // lora_id
  'medium',
  undefined, // lora_name, or metadata
  undefined, // extra_keys
  'group_idx',
  'kv_cache_spec_kind',
]
const removedFields: readonly (FieldName | undefined)[] = [undefined, 'block_hashes', 'medium', 'group_idx']

const knownNames: ReadonlySet<string> = new Set(fieldNames)
const nameLengthMax = 64

/** Reads one payload. Never throws, whatever the bytes. */
export function decodeKvBatch(payload: Uint8Array): DecodedKvBatch {
  const batch = new KvBatchReader(payload)
  const events = batch.read(Number.POSITIVE_INFINITY)
  const { unknownTagCount, badEventCount, isMalformed } = batch
  return { events, unknownTagCount, badEventCount, isMalformed }
}

/** Reads one payload in parts, for those that are long. Never throws, whatever the bytes. */
export class KvBatchReader {
  readonly isMalformed: boolean = false
  readonly #reader: MsgpackReader
  readonly #starts: readonly number[] = []
  readonly #counts = { unknownTagCount: 0, badEventCount: 0 }
  #next = 0

  constructor(payload: Uint8Array) {
    this.#reader = new MsgpackReader(payload)
    try {
      // The first pass only finds the events and their ends, so that a bad one is left out and the next one is found.
      this.#starts = locateEvents(this.#reader)
    } catch (error) {
      if (!(error instanceof MsgpackError)) throw error
      this.isMalformed = true
    }
  }

  /** Of the events read so far. */
  get unknownTagCount(): number {
    return this.#counts.unknownTagCount
  }

  get badEventCount(): number {
    return this.#counts.badEventCount
  }

  get isAtEnd(): boolean {
    return this.#next >= this.#starts.length
  }

  /** The next events, up to the first one that ends `sizeBytes` or more after where the first one began. */
  read(sizeBytes: number): KvEvent[] {
    const events: KvEvent[] = []
    const endAt = (this.#starts[this.#next] ?? 0) + sizeBytes
    while (!this.isAtEnd) {
      const start = this.#starts[this.#next] as number
      if (start >= endAt) break
      this.#next += 1
      this.#reader.at = start
      const event = decodeEvent(this.#reader, this.#counts)
      if (event) events.push(event)
    }
    return events
  }
}

function locateEvents(reader: MsgpackReader): number[] {
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
  let tag: string | undefined
  for (let rest = reader.mapLength(); rest > 0; rest--) {
    const name = nameHere(reader)
    if (name === 'type') tag = nameHere(reader)
    else {
      if (name !== undefined && knownNames.has(name)) fields.set(name as FieldName, reader.at)
      reader.skip()
    }
  }
  if (tag === undefined) throw new MsgpackError('event without a tag')
  return { tag, fields }
}

function arrayFields(reader: MsgpackReader): { tag: string; fields: Fields } {
  const fields: Fields = new Map()
  const length = reader.arrayLength()
  const tag = length > 0 ? nameHere(reader) : undefined
  if (tag === undefined) throw new MsgpackError('event without a tag')
  const names = tag === 'BlockStored' ? storedFields : removedFields
  for (let position = 1; position < length; position++) {
    const name = names[position]
    if (name !== undefined) fields.set(name, reader.at)
    reader.skip()
  }
  return { tag, fields }
}

/** The next value as a short string; undefined, and passed over, when it is something else. */
function nameHere(reader: MsgpackReader): string | undefined {
  if (reader.peek() !== 'string') {
    reader.skip()
    return undefined
  }
  const name = reader.string()
  return name.length <= nameLengthMax ? name : undefined
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
    groupKind: at(reader, fields, 'kv_cache_spec_kind', (here) => here.string()),
  }
}

function placed(reader: MsgpackReader, fields: Fields): Placed {
  const blockHashes = at(reader, fields, 'block_hashes', readHashes)
  if (blockHashes === null) throw new MsgpackError('event without block hashes')
  return {
    medium: at(reader, fields, 'medium', (here) => here.string()),
    groupIndex: at(reader, fields, 'group_idx', (here) => here.smallInteger()),
    isRemote:
      at(reader, fields, 'locality', (here) => here.string()) === 'REMOTE' ||
      at(reader, fields, 'ownership', (here) => here.string()) === 'REMOTE',
    blockHashes,
  }
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
