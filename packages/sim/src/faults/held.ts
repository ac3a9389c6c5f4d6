import type { TransportResponse } from '@infera/fleet'

/** A gate that lets everybody through while it is open. */
export class Gate {
  #isOpen = true
  #waiters = new Set<() => void>()

  get isOpen(): boolean {
    return this.#isOpen
  }

  close(): void {
    this.#isOpen = false
  }

  open(): void {
    this.#isOpen = true
    const waiters = this.#waiters
    this.#waiters = new Set()
    for (const resolve of waiters) resolve()
  }

  /** Resolves once it is open. @throws the signal's reason */
  pass(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason)
      if (this.#isOpen) return resolve()
      const waiter = () => {
        signal.removeEventListener('abort', onAbort)
        resolve()
      }
      const onAbort = () => {
        this.#waiters.delete(waiter)
        reject(signal.reason)
      }
      this.#waiters.add(waiter)
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }
}

/** The same response, with something to wait for before each chunk and before the end. */
export function paced(response: TransportResponse, wait: () => Promise<void>): TransportResponse {
  return { ...response, body: pacedBody(response.body, wait) }
}

async function* pacedBody(
  body: AsyncIterable<Uint8Array>,
  wait: () => Promise<void>,
): AsyncGenerator<Uint8Array> {
  await wait()
  for await (const chunk of body) {
    yield chunk
    await wait()
  }
}
