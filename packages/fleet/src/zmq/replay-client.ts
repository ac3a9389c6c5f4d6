import { type ExchangeOptions, exchange } from './exchange.js'
import { encodeSequence, type NumberedBatch, parseReplay } from './frames.js'

export interface ReplayOptions extends Omit<ExchangeOptions, 'receiveHighWaterMark'> {
  /** Largest single batch, and most bytes of all together. */
  readonly payloadBytesMax: number
  readonly bytesMax: number
}

/**
 * Engines hold 10 000 batches by default, and send them all in one go: a reader with less room than that makes them drop some,
 * the end among them.
 */
const batchesMax = 65_536
/** Charged for each batch on top of its bytes. */
const batchOverheadBytes = 64
/** Questions in a row that brought nothing new. */
const vainMax = 2

/**
 * Fetches the batches an engine still holds, from `from` on. What its socket dropped on the way is asked for again.
 * @returns an unbroken row that begins at `from` or, if that is not held any more, later; empty when there is none. Undefined when
 * nobody answers, or the row is larger than `bytesMax`.
 */
export async function fetchReplay(
  options: ReplayOptions,
  from: number,
): Promise<readonly NumberedBatch[] | undefined> {
  const batches: NumberedBatch[] = []
  let heldBytes = 0
  for (let vain = 0; vain < vainMax; ) {
    const next = (batches.at(-1)?.sequence ?? from - 1) + 1
    const countBefore = batches.length
    let isBroken = false
    let isTooLarge = false
    const question = [new Uint8Array(), encodeSequence(next)]
    const end = await exchange({ ...options, receiveHighWaterMark: batchesMax }, question, (frames) => {
      const batch = parseReplay(frames, options.payloadBytesMax)
      if (batch === 'end') return { isLast: true }
      // Unreadable ones are as good as dropped.
      if (!batch || isBroken) return { isLast: false }
      const last = batches.at(-1)
      if (batch.sequence < next || (last && batch.sequence <= last.sequence)) return { isLast: false }
      if (last && batch.sequence !== last.sequence + 1) {
        isBroken = true
        return { isLast: false }
      }
      heldBytes += batch.payload.byteLength + batchOverheadBytes
      isTooLarge = heldBytes > options.bytesMax || batches.length >= batchesMax
      if (!isTooLarge) batches.push(batch)
      return { isLast: isTooLarge }
    })
    if (isTooLarge || end === 'aborted' || end === 'refused') return undefined
    if (end === 'done' && !isBroken) return batches
    // A hole that the engine does not fill either ends the row.
    vain = batches.length > countBefore ? 0 : vain + 1
  }
  return batches.length > 0 ? batches : undefined
}
