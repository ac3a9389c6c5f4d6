import type { KvEventMessage, KvEventTransport, KvViewMessage, WorkerRecord } from '@infera/fleet'
import { encode } from '@msgpack/msgpack'

type Item = KvEventMessage | KvViewMessage | { readonly end: true } | { readonly error: unknown }

/** One subscription of the router to a worker's events. */
export class Subscription {
  readonly #items: Item[] = []
  #wake: () => void = () => {}
  isLeft = false

  constructor(readonly signal: AbortSignal | undefined) {
    signal?.addEventListener('abort', () => this.#push({ end: true }), { once: true })
  }

  send(message: KvEventMessage | KvViewMessage): void {
    this.#push(message)
  }

  snapshot(sequence: number, events: unknown[], rank = 0): void {
    this.send({ type: 'snapshot', rank, sequence, payloads: [payloadOf(events)] })
  }

  view(sequence: number, hashes: BigUint64Array, rank = 0): void {
    this.send({ type: 'view', rank, sequence, hashes })
  }

  batch(sequence: number, events: unknown[], rank = 0): void {
    this.send({ type: 'batch', rank, sequence, payload: payloadOf(events) })
  }

  end(): void {
    this.#push({ end: true })
  }

  fail(error: unknown): void {
    this.#push({ error })
  }

  async *messages(): AsyncGenerator<KvEventMessage | KvViewMessage> {
    try {
      for (;;) {
        const item = this.#items.shift()
        if (!item) {
          await new Promise<void>((resolve) => {
            this.#wake = resolve
          })
        } else if ('end' in item) return
        else if ('error' in item) throw item.error
        else yield item
      }
    } finally {
      this.isLeft = true
    }
  }

  #push(item: Item): void {
    this.#items.push(item)
    this.#wake()
  }
}

/** KV events in memory, published by the test. For tests only. */
export class ScriptedKvEvents implements KvEventTransport {
  readonly kind = 'scripted'
  /** By worker id, in the order in which they were opened. */
  readonly subscriptions = new Map<string, Subscription[]>()

  serves(_worker: WorkerRecord): boolean {
    return true
  }

  subscribe(
    worker: WorkerRecord,
    options: { signal?: AbortSignal } = {},
  ): AsyncIterable<KvEventMessage | KvViewMessage> {
    const subscription = new Subscription(options.signal)
    const others = this.subscriptions.get(worker.worker_id) ?? []
    this.subscriptions.set(worker.worker_id, [...others, subscription])
    return { [Symbol.asyncIterator]: () => subscription.messages() }
  }

  /** The latest subscription to a worker. */
  of(workerId: string): Subscription {
    const subscription = this.subscriptions.get(workerId)?.at(-1)
    if (!subscription) throw new Error(`nobody subscribed to '${workerId}'`)
    return subscription
  }
}

export function payloadOf(events: unknown[]): Uint8Array {
  return encode([0, events, null], { useBigInt64: true })
}

/** A stored event for the bytes of a text, in blocks of `blockSizeTokens`, with engine hashes that start at `firstHash`. */
export function storedText(text: string, blockSizeTokens: number, firstHash = 1): unknown {
  const tokens = [...Buffer.from(text, 'utf8')]
  const blockCount = Math.floor(tokens.length / blockSizeTokens)
  return {
    type: 'BlockStored',
    block_hashes: Array.from({ length: blockCount }, (_, index) => firstHash + index),
    parent_block_hash: null,
    token_ids: tokens.slice(0, blockCount * blockSizeTokens),
    block_size: blockSizeTokens,
    lora_id: null,
  }
}
