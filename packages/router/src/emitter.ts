/** Notifications that may be missed. What comes in order and must not be lost is an async iterable elsewhere. */
export interface Events<E extends { readonly type: string }> {
  /** @returns takes the listener away again */
  on<T extends E['type']>(type: T, listener: Listener<E, T>): () => void
  /** For the next one alone. @returns takes the listener away before */
  once<T extends E['type']>(type: T, listener: Listener<E, T>): () => void
}

export type Listener<E extends { readonly type: string }, T extends E['type']> = (
  event: Extract<E, { readonly type: T }>,
) => void

/**
 * Tells listeners, in the order in which events happened and listeners came. They are called in a microtask of their own: a
 * listener may call whoever emits without finding it half-way through a change.
 */
export class Emitter<E extends { readonly type: string }> implements Events<E> {
  readonly #listeners = new Map<string, Set<(event: never) => unknown>>()
  readonly #onFault: (error: unknown, type: E['type']) => void

  /** @param onFault told when a listener throws, or rejects; the others are called all the same */
  constructor(onFault: (error: unknown, type: E['type']) => void) {
    this.#onFault = onFault
  }

  on<T extends E['type']>(type: T, listener: Listener<E, T>): () => void {
    // Wrapped, so that one function may listen twice, and be taken away once.
    const own = (event: Extract<E, { readonly type: T }>) => listener(event)
    const others = this.#listeners.get(type) ?? new Set()
    this.#listeners.set(type, others.add(own))
    return () => {
      others.delete(own)
    }
  }

  once<T extends E['type']>(type: T, listener: Listener<E, T>): () => void {
    const stop = this.on(type, (event) => {
      stop()
      return listener(event)
    })
    return stop
  }

  emit(event: E): void {
    if (!this.#listeners.get(event.type)?.size) return
    queueMicrotask(() => {
      for (const listener of [...(this.#listeners.get(event.type) ?? [])]) this.#call(listener, event)
    })
  }

  #call(listener: (event: never) => unknown, event: E): void {
    try {
      const result = listener(event as never)
      if (result instanceof Promise) result.catch((error: unknown) => this.#onFault(error, event.type))
    } catch (error) {
      this.#onFault(error, event.type)
    }
  }
}
