/**
 * Snapshots of workers of ours, asked for at the ROUTER socket that answers replays too. After the empty delimiter:
 *
 *     asks      "infera.kv.1", "open"                              the cache as it is now
 *               "infera.kv.1", "more"                              one part was read, one more may come
 *     answers   "infera.kv.1", "part", number, flag, payload*      flag 1 on the last part
 *               "infera.kv.1", "gone"                              there is no such snapshot (any more): open another
 *
 * `number` is that of the newest batch in the snapshot, an i64 in big endian, -1 before the first. At most `partsAhead` parts are
 * under way, so that a slow reader is waited for where a high-water mark would drop.
 *
 * A subscriber knows that the publisher knows of it when a topic of its own comes back: it subscribes to `kv-sync.<token>`,
 * and the publisher answers with one frame, that topic. What is asked for after that misses no batch.
 */
export const protocol = 'infera.kv.1'
export const partsAhead = 4
export const syncPrefix = 'kv-sync.'
const syncBytesMax = 64

export type SnapshotAsk = 'open' | 'more'
export type SnapshotAnswer =
  | {
      readonly type: 'part'
      readonly sequence: number
      readonly isLast: boolean
      readonly payloads: readonly Uint8Array[]
    }
  | { readonly type: 'gone' }

const asks: ReadonlySet<string> = new Set<SnapshotAsk>(['open', 'more'])
const nothing = Buffer.alloc(0)

export function encodeAsk(ask: SnapshotAsk): Uint8Array[] {
  return [nothing, Buffer.from(protocol), Buffer.from(ask)]
}

/** @param frames without the identity that a ROUTER puts before them */
export function parseAsk(frames: readonly Uint8Array[]): SnapshotAsk | undefined {
  if (frames.length !== 3 || textOf(frames[0]) !== '' || textOf(frames[1]) !== protocol) return undefined
  const ask = textOf(frames[2])
  return ask !== undefined && asks.has(ask) ? (ask as SnapshotAsk) : undefined
}

export function encodeAnswer(answer: SnapshotAnswer): Uint8Array[] {
  const head = [nothing, Buffer.from(protocol), Buffer.from(answer.type)]
  if (answer.type === 'gone') return head
  const number = Buffer.alloc(8)
  number.writeBigInt64BE(BigInt(answer.sequence))
  return [...head, number, Buffer.of(answer.isLast ? 1 : 0), ...answer.payloads]
}

/** @returns undefined for whatever is no answer */
export function parseAnswer(frames: readonly Uint8Array[]): SnapshotAnswer | undefined {
  if (textOf(frames[0]) !== '' || textOf(frames[1]) !== protocol) return undefined
  const type = textOf(frames[2])
  if (type === 'gone' && frames.length === 3) return { type: 'gone' }
  const number = frames[3]
  const flag = frames[4]
  if (type !== 'part' || number?.byteLength !== 8 || flag?.byteLength !== 1) return undefined
  const sequence = Number(new DataView(number.buffer, number.byteOffset, 8).getBigInt64(0))
  if (!Number.isSafeInteger(sequence) || sequence < -1 || (flag[0] ?? 2) > 1) return undefined
  // Copied, so that no payload keeps a chunk of the socket alive.
  const payloads = frames.slice(5).map((payload) => new Uint8Array(payload))
  return { type: 'part', sequence, isLast: flag[0] === 1, payloads }
}

/** The topic that a subscription message of an XPUB socket asks for, if it is one to answer. */
export function parseSync(frames: readonly Uint8Array[]): Buffer | undefined {
  const [message] = frames
  if (frames.length !== 1 || message?.[0] !== 1 || message.byteLength > syncBytesMax) return undefined
  const topic = Buffer.from(message.subarray(1))
  return topic.toString('latin1').startsWith(syncPrefix) ? topic : undefined
}

/** Whether a message is a publisher's answer to such a subscription, somebody's. */
export function isSync(frames: readonly Uint8Array[]): boolean {
  const [topic] = frames
  if (frames.length !== 1 || !topic) return false
  return Buffer.from(topic.subarray(0, syncPrefix.length)).toString('latin1') === syncPrefix
}

function textOf(frame: Uint8Array | undefined): string | undefined {
  return frame === undefined || frame.byteLength > 32 ? undefined : Buffer.from(frame).toString('latin1')
}
