// Where a relay begins anew it publishes a batch of an engine's own kind, one that says that all blocks are gone, so that every
// reader of the reference empties its view. Ours find in it, under a key that others skip, what follows:
//   map    92 cb <ts f64> 91 82 a4 "type" b0 "AllBlocksCleared" ac "infera_epoch" d9 <length> <text>
//   array  92 cb <ts f64> 91 92 b0 "AllBlocksCleared" d9 <length> <text>
//   text   "<instance> <sequence> <count>"
// The `count` messages after it on the same subject are the cache as it is just after batch `sequence` (-1: none yet); the batches
// after those are numbered on from there. No other message is touched: engines' payloads travel as they are.

export interface KvEpoch {
  /** Of the relay's process. */
  readonly instance: string
  readonly sequence: number
  readonly count: number
}

/** How the engine writes its events; readers of the reference choose by the engine's name. */
export type KvEventShape = 'map' | 'array'

const heads: Record<KvEventShape, Buffer> = {
  map: Buffer.from('\x91\x82\xa4type\xb0AllBlocksCleared\xacinfera_epoch\xd9', 'latin1'),
  array: Buffer.from('\x91\x92\xb0AllBlocksCleared\xd9', 'latin1'),
}
const timeBytes = 10

/** @param timeS Unix time in seconds, as engines state it */
export function encodeKvEpoch(epoch: KvEpoch, shape: KvEventShape, timeS: number): Uint8Array {
  const text = Buffer.from(`${epoch.instance} ${epoch.sequence} ${epoch.count}`, 'latin1')
  const time = Buffer.alloc(timeBytes)
  time[0] = 0x92
  time[1] = 0xcb
  time.writeDoubleBE(timeS, 2)
  return Buffer.concat([time, heads[shape], Buffer.of(text.byteLength), text])
}

/** @returns undefined for every other payload */
export function decodeKvEpoch(payload: Uint8Array): KvEpoch | undefined {
  if (payload[0] !== 0x92 || payload[1] !== 0xcb) return undefined
  const rest = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).subarray(timeBytes)
  for (const head of [heads.map, heads.array]) {
    if (!rest.subarray(0, head.byteLength).equals(head)) continue
    const text = rest.subarray(head.byteLength + 1)
    if (text.byteLength !== rest[head.byteLength]) return undefined
    const match = /^([\w-]{1,64}) (-1|\d{1,15}) (\d{1,9})$/.exec(text.toString('latin1'))
    if (match?.[1] === undefined) return undefined
    return { instance: match[1], sequence: Number(match[2]), count: Number(match[3]) }
  }
  return undefined
}
