import {
  type KvEventMessage,
  type KvEventTransport,
  type KvViewMessage,
  TransportError,
  type WorkerRecord,
} from '@infera/fleet'

type Message = KvEventMessage | KvViewMessage

/** What becomes of one message: those that are handed on in its place, in order. */
export type EventFault = (
  message: KvEventMessage,
  subscription: EventSubscription,
) => readonly KvEventMessage[] | Promise<readonly KvEventMessage[]>

/** What a fault may do to the subscription that a message came by. */
export interface EventSubscription {
  /** Aborted when the subscriber is gone. */
  readonly signal: AbortSignal
  /** Closes a gap of so many batches: numbers of later ones are that much lower, until the next snapshot. */
  renumber(batches: number): void
}

/**
 * A KV-event transport with faults, by worker. Batches are lost with a gap in their numbers (a queue that overflows) or without
 * one (a relay that numbers by itself), come again later (a broker that replays), in another order, or late; a subscription breaks.
 */
export class FaultyKvEvents implements KvEventTransport {
  readonly #inner: KvEventTransport
  readonly #faults = new Map<string, Set<EventFault>>()
  readonly #broken = new Set<string>()
  readonly #subscriptions = new Map<string, Set<Subscription>>()

  constructor(inner: KvEventTransport) {
    this.#inner = inner
  }

  get kind(): string {
    return this.#inner.kind
  }

  /** Subscriptions that are open. */
  get subscriptionCount(): number {
    let count = 0
    for (const subscriptions of this.#subscriptions.values()) count += subscriptions.size
    return count
  }

  serves(worker: WorkerRecord): boolean {
    return this.#inner.serves(worker)
  }

  /** @returns what takes it away again */
  add(workerId: string, fault: EventFault): () => void {
    const faults = this.#faults.get(workerId) ?? new Set()
    this.#faults.set(workerId, faults)
    faults.add(fault)
    return () => {
      faults.delete(fault)
      if (faults.size === 0 && this.#faults.get(workerId) === faults) this.#faults.delete(workerId)
    }
  }

  /** Breaks what is subscribed to of a worker. @param isLasting whether new subscriptions break as well, until `mend` */
  break(workerId: string, isLasting: boolean): void {
    if (isLasting) this.#broken.add(workerId)
    for (const subscription of [...(this.#subscriptions.get(workerId) ?? [])]) subscription.break()
  }

  mend(workerId: string): void {
    this.#broken.delete(workerId)
  }

  subscribe(worker: WorkerRecord, { signal }: { signal?: AbortSignal } = {}): AsyncIterable<Message> {
    const workerId = worker.worker_id
    return {
      [Symbol.asyncIterator]: () => {
        const own = new AbortController()
        const inner = this.#inner.subscribe(worker, { signal: own.signal })[Symbol.asyncIterator]()
        const subscription: Subscription = new Subscription(workerId, inner, own, signal, {
          faults: () => [...(this.#faults.get(workerId) ?? [])],
          onEnd: () => this.#forget(workerId, subscription),
        })
        const others = this.#subscriptions.get(workerId) ?? new Set()
        this.#subscriptions.set(workerId, others.add(subscription))
        if (this.#broken.has(workerId)) subscription.break()
        return subscription
      },
    }
  }

  #forget(workerId: string, subscription: Subscription): void {
    const others = this.#subscriptions.get(workerId)
    others?.delete(subscription)
    if (others?.size === 0) this.#subscriptions.delete(workerId)
  }
}

class Subscription implements AsyncIterator<Message>, EventSubscription {
  readonly signal: AbortSignal
  readonly #workerId: string
  readonly #inner: AsyncIterator<Message>
  readonly #own: AbortController
  readonly #hooks: { readonly faults: () => readonly EventFault[]; readonly onEnd: () => void }
  readonly #forgetSignal: () => void
  #ready: Message[] = []
  #closedGap = 0
  #isBroken = false
  #isEnded = false

  constructor(
    workerId: string,
    inner: AsyncIterator<Message>,
    own: AbortController,
    signal: AbortSignal | undefined,
    hooks: { readonly faults: () => readonly EventFault[]; readonly onEnd: () => void },
  ) {
    this.#workerId = workerId
    this.#inner = inner
    this.#own = own
    this.signal = own.signal
    this.#hooks = hooks
    const onAbort = () => own.abort(signal?.reason)
    if (signal?.aborted) onAbort()
    signal?.addEventListener('abort', onAbort, { once: true })
    this.#forgetSignal = () => signal?.removeEventListener('abort', onAbort)
  }

  renumber(batches: number): void {
    this.#closedGap += batches
  }

  break(): void {
    this.#isBroken = true
    // Ends the inner iteration, which whoever waits for it then learns.
    this.#own.abort()
  }

  async next(): Promise<IteratorResult<Message>> {
    try {
      for (;;) {
        if (this.#isBroken) throw this.#error()
        const ready = this.#ready.shift()
        if (ready) return { value: ready, done: false }
        const result = await this.#inner.next()
        if (this.#isBroken) throw this.#error()
        if (result.done) {
          this.#end()
          return result
        }
        this.#ready.push(...(await this.#faulted(result.value)))
      }
    } catch (error) {
      this.#end()
      throw error
    }
  }

  async return(): Promise<IteratorResult<Message>> {
    this.#end()
    await this.#inner.return?.()
    return { value: undefined, done: true }
  }

  async #faulted(message: Message): Promise<readonly Message[]> {
    // Faults are of events.
    if (message.type === 'view') return [message]
    if (message.type === 'snapshot') this.#closedGap = 0
    let messages: readonly KvEventMessage[] = [message]
    for (const fault of this.#hooks.faults()) {
      const passed: KvEventMessage[] = []
      for (const each of messages) passed.push(...(await fault(each, this)))
      messages = passed
    }
    return messages.map((each) =>
      each.type === 'batch' && this.#closedGap > 0
        ? { ...each, sequence: each.sequence - this.#closedGap }
        : each,
    )
  }

  #end(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#forgetSignal()
    this.#own.abort()
    this.#hooks.onEnd()
  }

  #error(): TransportError {
    const message = `the subscription to events of worker '${this.#workerId}' broke`
    return new TransportError('INFERA_FLEET_BROKEN', this.#workerId, message)
  }
}
