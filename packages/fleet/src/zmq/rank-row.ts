import type { KvEventMessage } from '../ports/kv-events.js'
import type { LiveBatch, NumberedBatch } from './frames.js'

/** Charged for each held batch on top of its bytes. */
const batchOverheadBytes = 64

/** What the row cannot go on without. Each is an object of its own, so that an answer to an older one is known as such. */
export type RowNeed =
  | {
      readonly how: 'snapshot'
      /** Not before the reader has taken all it has. */
      readonly whenDrained: boolean
      /** Another try at one that could not be had before. */
      readonly isCheck: boolean
    }
  | {
      readonly how: 'replay'
      /** First sequence asked for. */
      readonly from: number
      /** What is known of batch `from` already; if it now reads differently, another engine publishes. */
      readonly known: Uint8Array | undefined
      /** The engine may have been started anew: without proof that it was not, what is known of its cache is not kept. */
      readonly isDoubtful: boolean
      readonly whenDrained: boolean
      /** Nothing is known to be missing. */
      readonly isCheck: boolean
    }

export interface RowOptions {
  readonly rank: number
  readonly canSnapshot: boolean
  readonly canReplay: boolean
  /** Most bytes of live batches that wait while a need is open; one batch always may. */
  readonly heldBytesMax: number
  /** Told of what happened, for counters and logs. */
  readonly onIncident: (incident: RowIncident) => void
}

export type RowIncident = 'gap' | 'restart' | 'duplicate' | 'emptied' | 'behind' | 'mixed'

/**
 * The order of one rank's messages, without sockets: live batches, answers and connections in, messages for the reader out. A
 * message leaves only in an unbroken row after a snapshot. Where a gap can be filled by nobody, an empty snapshot begins the view
 * anew: a cache that is thought too small costs time, one that is thought too large costs wrong placements.
 */
export class RankRow {
  readonly #options: RowOptions
  #need: RowNeed | undefined
  /** Of the newest message handed out; undefined before the snapshot. */
  #last: number | undefined
  /** The batch numbered `#last`, if it was one. */
  #lastPayload: Uint8Array | undefined
  /** Of the newest live batch. Within one life of an engine these only grow. */
  #lastLive: number | undefined
  #isNumbered: boolean | undefined
  /** Whether it went on without a snapshot that could not be had. */
  #lacksSnapshot = false
  #held: NumberedBatch[] = []
  #heldBytes = 0

  constructor(options: RowOptions) {
    this.#options = options
    this.#need = this.#needOfStart()
  }

  /** What must be fetched before anything goes on. */
  get need(): RowNeed | undefined {
    return this.#need
  }

  live(batch: LiveBatch): KvEventMessage[] {
    this.#isNumbered ??= batch.sequence !== undefined
    if (this.#isNumbered !== (batch.sequence !== undefined)) {
      this.#options.onIncident('mixed')
      return []
    }
    if (batch.sequence === undefined) return this.#unnumbered(batch.payload)
    const numbered = { sequence: batch.sequence, payload: batch.payload }
    if (this.#lastLive !== undefined && numbered.sequence <= this.#lastLive) this.#restart()
    this.#lastLive = numbered.sequence
    if (this.#need) {
      this.#hold(numbered)
      return []
    }
    this.#held.push(numbered)
    return this.#drain(false)
  }

  /**
   * @param batches an unbroken row from `need.from` or later on; undefined when nobody answered
   */
  replayed(need: RowNeed, batches: readonly NumberedBatch[] | undefined): KvEventMessage[] {
    if (need !== this.#need || need.how !== 'replay') return []
    this.#need = undefined
    if (this.#last === undefined) return this.#begin(batches)
    const first = batches?.[0]
    const isAnother = need.known && batches && (!first || this.#contradicts(first, need.from, need.known))
    if (isAnother) {
      this.#restart()
      return []
    }
    if (need.isCheck && !first) return this.#drain(false)
    const next = this.#last + 1
    const isProven = !need.isDoubtful || first?.sequence === need.from
    if (first && first.sequence <= next && isProven) return [...this.#append(batches), ...this.#drain(false)]
    if (this.#options.canSnapshot) {
      this.#need = snapshotNeed()
      return []
    }
    if (first) return [...this.#empty(first.sequence - 1), ...this.#append(batches), ...this.#drain(false)]
    return need.isDoubtful ? [...this.#empty(this.#last), ...this.#drain(false)] : this.#drain(true)
  }

  /** @param payloads undefined when it cannot be had */
  snapshot(need: RowNeed, sequence: number, payloads: readonly Uint8Array[] | undefined): KvEventMessage[] {
    if (need !== this.#need || need.how !== 'snapshot') return []
    this.#need = undefined
    this.#lacksSnapshot = !payloads
    if (!payloads) {
      if (this.#options.canReplay && this.#last === undefined) {
        this.#need = replayFrom(0)
        return []
      }
      return this.#drain(true)
    }
    this.#last = sequence
    this.#lastPayload = undefined
    return [this.#snapshotOf(payloads), ...this.#drain(false)]
  }

  /** The connection is back after a loss: batches may be missing, and the engine may be another. */
  reconnected(): KvEventMessage[] {
    const { canSnapshot, canReplay } = this.#options
    const wasUnnumbered = this.#isNumbered === false
    this.#isNumbered = undefined
    // Nothing will ever tell what was lost.
    if (wasUnnumbered && this.#last !== undefined) return this.#empty(this.#last)
    if (!canSnapshot && !canReplay) return []
    // What came over the old connection may be another engine's, and what is the present one's can be had again.
    this.#held = []
    this.#heldBytes = 0
    if (canSnapshot || !this.#lastPayload) {
      this.#last = undefined
      this.#need = this.#needOfStart()
    } else this.#need = this.#missing({ isDoubtful: true })
    return []
  }

  /** Asks whether something is missing that no later batch has shown. */
  check(): void {
    if (this.#need || this.#isNumbered === false) return
    if (this.#lacksSnapshot) this.#need = snapshotNeed({ isCheck: true })
    if (this.#need || this.#last === undefined || !this.#options.canReplay) return
    this.#need = this.#missing({ isCheck: true })
  }

  /**
   * The reader is behind: `refused` is the first batch handed out that was not taken; none after it was either.
   * @param options.hasUnreadSnapshot asking for another at once would only cost the worker
   * @returns messages that take the place of whatever the reader still has of this rank; none: it keeps that
   */
  behind(refused: NumberedBatch, options: { readonly hasUnreadSnapshot: boolean }): KvEventMessage[] {
    this.#options.onIncident('behind')
    if (this.#isNumbered === false) return this.#empty(this.#last ?? refused.sequence)
    if (this.#options.canSnapshot) {
      // Nothing follows on what the reader has: should there be no snapshot, it begins anew all the same.
      this.#last = undefined
      this.#lastPayload = undefined
      this.#need = snapshotNeed({ whenDrained: options.hasUnreadSnapshot })
      return []
    }
    if (this.#options.canReplay) {
      this.#last = refused.sequence - 1
      this.#lastPayload = undefined
      this.#need = replayFrom(refused.sequence, { known: refused.payload, whenDrained: true })
      return []
    }
    return this.#empty(this.#last ?? refused.sequence)
  }

  #unnumbered(payload: Uint8Array): KvEventMessage[] {
    // Whatever could be fetched has numbers that say nothing here.
    this.#need = undefined
    const begun = this.#last === undefined ? this.#empty(-1) : []
    return [...begun, ...this.#append([{ sequence: (this.#last ?? -1) + 1, payload }])]
  }

  #begin(batches: readonly NumberedBatch[] | undefined): KvEventMessage[] {
    const first = batches?.[0]
    if (!batches) return this.#drain(true)
    if (first && first.sequence > 0)
      return [...this.#empty(first.sequence - 1), ...this.#append(batches), ...this.#drain(false)]
    const last = batches.at(-1)
    this.#last = last?.sequence ?? -1
    this.#lastPayload = last?.payload
    return [this.#snapshotOf(batches.map(({ payload }) => payload)), ...this.#drain(false)]
  }

  #restart(): void {
    this.#options.onIncident('restart')
    this.#last = undefined
    this.#lastPayload = undefined
    this.#lastLive = undefined
    this.#held = []
    this.#heldBytes = 0
    this.#need = this.#needOfStart()
  }

  #needOfStart(): RowNeed | undefined {
    if (this.#options.canSnapshot) return snapshotNeed()
    return this.#options.canReplay ? replayFrom(0) : undefined
  }

  /** What follows on the newest batch, and that one again, where it is there to compare. */
  #missing(options: { isDoubtful?: boolean; isCheck?: boolean } = {}): RowNeed {
    const last = this.#last ?? -1
    const known = this.#lastPayload
    return replayFrom(known ? last : last + 1, { ...options, known })
  }

  #contradicts(first: NumberedBatch, sequence: number, payload: Uint8Array): boolean {
    return first.sequence === sequence && Buffer.compare(first.payload, payload) !== 0
  }

  #hold(batch: NumberedBatch): void {
    const costBytes = batch.payload.byteLength + batchOverheadBytes
    if (this.#heldBytes + costBytes > this.#options.heldBytesMax) {
      // The newest one stays and shows the gap.
      this.#held = []
      this.#heldBytes = 0
    }
    this.#held.push(batch)
    this.#heldBytes += costBytes
  }

  /**
   * Hands out what is held, up to a gap.
   * @param isLast the first gap cannot be filled
   */
  #drain(isLast: boolean): KvEventMessage[] {
    const held = this.#held
    this.#held = []
    this.#heldBytes = 0
    const messages: KvEventMessage[] = []
    let canFill = !isLast && (this.#options.canReplay || this.#options.canSnapshot)
    for (const [index, batch] of held.entries()) {
      if (this.#last !== undefined && batch.sequence <= this.#last) {
        this.#options.onIncident('duplicate')
        continue
      }
      if (this.#last === undefined || batch.sequence > this.#last + 1) {
        if (this.#last !== undefined) this.#options.onIncident('gap')
        if (this.#last !== undefined && canFill) {
          this.#need = this.#options.canReplay ? this.#missing() : snapshotNeed()
          for (const rest of held.slice(index)) this.#hold(rest)
          return messages
        }
        messages.push(...this.#empty(batch.sequence - 1))
        canFill = this.#options.canReplay || this.#options.canSnapshot
      }
      messages.push(...this.#append([batch]))
    }
    return messages
  }

  #append(batches: readonly NumberedBatch[]): KvEventMessage[] {
    const messages: KvEventMessage[] = []
    for (const { sequence, payload } of batches) {
      if (this.#last !== undefined && sequence <= this.#last) continue
      this.#last = sequence
      this.#lastPayload = payload
      messages.push({ type: 'batch', rank: this.#options.rank, sequence, payload })
    }
    return messages
  }

  #empty(sequence: number): KvEventMessage[] {
    if (this.#last !== undefined) this.#options.onIncident('emptied')
    this.#last = sequence
    this.#lastPayload = undefined
    return [this.#snapshotOf([])]
  }

  #snapshotOf(payloads: readonly Uint8Array[]): KvEventMessage {
    return { type: 'snapshot', rank: this.#options.rank, sequence: this.#last ?? -1, payloads }
  }
}

function snapshotNeed(options: { whenDrained?: boolean; isCheck?: boolean } = {}): RowNeed {
  const { whenDrained = false, isCheck = false } = options
  return { how: 'snapshot', whenDrained, isCheck }
}

function replayFrom(
  from: number,
  options: {
    known?: Uint8Array | undefined
    whenDrained?: boolean
    isCheck?: boolean
    isDoubtful?: boolean
  } = {},
): RowNeed {
  const { known, whenDrained = false, isCheck = false, isDoubtful = false } = options
  return { how: 'replay', from, known, whenDrained, isCheck, isDoubtful }
}
