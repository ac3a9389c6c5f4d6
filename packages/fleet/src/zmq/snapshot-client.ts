import { type ExchangeOptions, exchange } from './exchange.js'
import { encodeAsk, parseAnswer, partsAhead } from './snapshot-frames.js'

export interface SnapshotOptions extends Omit<ExchangeOptions, 'receiveHighWaterMark'> {
  readonly snapshotBytesMax: number
}

export type FetchedSnapshot =
  | { readonly type: 'snapshot'; readonly sequence: number; readonly payloads: readonly Uint8Array[] }
  | { readonly type: 'tooLarge' }
  /** A worker of ours that has too much to do, or was started anew. */
  | { readonly type: 'turnedAway' }
  | { readonly type: 'failed'; readonly why: string }

/** More payloads than this in one snapshot are a fault: each costs an object, even when empty. */
const payloadsMax = 1_048_576
/** Parts without a payload are a fault too, but for the last. */
const partsSpareMax = 16

/** Fetches the cache of one rank from a worker of ours. Whoever leaves early is forgotten there after a while. */
export async function fetchSnapshot(options: SnapshotOptions): Promise<FetchedSnapshot> {
  const payloads: Uint8Array[] = []
  let sequence: number | undefined
  let heldBytes = 0
  let partCount = 0
  let outcome: FetchedSnapshot | undefined
  const settle = (result: FetchedSnapshot) => {
    outcome = result
    return { isLast: true }
  }
  const end = await exchange(
    { ...options, receiveHighWaterMark: 2 * partsAhead },
    encodeAsk('open'),
    (frames) => {
      const answer = parseAnswer(frames)
      if (!answer) return settle({ type: 'failed', why: 'unreadable answer' })
      if (answer.type === 'gone') return settle({ type: 'turnedAway' })
      sequence ??= answer.sequence
      partCount += 1
      for (const payload of answer.payloads) {
        heldBytes += payload.byteLength
        payloads.push(payload)
      }
      if (sequence !== answer.sequence || partCount > payloads.length + partsSpareMax)
        return settle({ type: 'failed', why: 'parts that do not fit together' })
      if (heldBytes > options.snapshotBytesMax || payloads.length > payloadsMax)
        return settle({ type: 'tooLarge' })
      if (answer.isLast) return settle({ type: 'snapshot', sequence, payloads })
      return { isLast: false, reply: encodeAsk('more') }
    },
  )
  return outcome ?? { type: 'failed', why: end }
}
