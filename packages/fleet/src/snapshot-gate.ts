import type { FleetChange } from './ports/discovery.js'

/** Holds first snapshots back until there is something to say: before the first list, an empty one would not be the truth. */
export class SnapshotGate {
  #open = () => {}
  readonly #opened = new Promise<void>((resolve) => {
    this.#open = resolve
  })
  #isOpen = false

  open(): void {
    this.#isOpen = true
    this.#open()
  }

  /** The same changes; the first waits for the gate. The signal ends that wait too. */
  behind(changes: AsyncIterable<FleetChange>, signal: AbortSignal | undefined): AsyncIterable<FleetChange> {
    return {
      [Symbol.asyncIterator]: () => {
        const iterator = changes[Symbol.asyncIterator]()
        let leave = () => {}
        const left = new Promise<void>((resolve) => {
          leave = resolve
        })
        return {
          next: async () => {
            if (!this.#isOpen) {
              signal?.addEventListener('abort', leave, { once: true })
              if (signal?.aborted) leave()
              await Promise.race([this.#opened, left])
              signal?.removeEventListener('abort', leave)
            }
            return iterator.next()
          },
          return: async () => {
            leave()
            await iterator.return?.()
            return { value: undefined, done: true }
          },
        }
      },
    }
  }
}
