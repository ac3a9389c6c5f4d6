import type { KvEventBatch, KvEventSource } from '@infera/fleet'

/** An engine's events, some of which never leave it: their numbers are missing, so that whoever listens can tell. */
export class FaultyKvSource implements KvEventSource {
  readonly #inner: KvEventSource
  #lossesLeft = 0
  #isTailLost = false

  constructor(inner: KvEventSource) {
    this.#inner = inner
  }

  get ranks(): readonly number[] {
    return this.#inner.ranks
  }

  /** Whether the newest batch was lost. Nobody can tell before there is a newer one. */
  get isTailLost(): boolean {
    return this.#isTailLost
  }

  /** The next so many batches are lost, for every listener; 0 ends it. */
  lose(batches: number): void {
    this.#lossesLeft = batches
  }

  snapshot(rank: number): ReturnType<KvEventSource['snapshot']> {
    return this.#inner.snapshot(rank)
  }

  subscribe(listener: (batch: KvEventBatch) => void): () => void {
    return this.#inner.subscribe((batch) => {
      this.#isTailLost = this.#lossesLeft > 0
      if (this.#isTailLost) this.#lossesLeft -= 1
      else listener(batch)
    })
  }
}
