/** A timer that was armed; cancelling one that fired or was cancelled does nothing. */
export interface Timer {
  cancel(): void
}

/** Where time comes from. Everything that waits takes one, so that a test can own time. */
export interface Clock {
  /** Monotonic milliseconds since an arbitrary start; fractional. */
  now(): number
  /** Calls back once, not before `delayMs` (>= 0) have passed. */
  setTimer(delayMs: number, callback: () => void): Timer
}

/** The process's own clock. Timers keep the process alive; owners cancel them on close. */
export const systemClock: Clock = {
  now: () => performance.now(),
  setTimer(delayMs, callback) {
    const handle = setTimeout(callback, delayMs)
    return { cancel: () => clearTimeout(handle) }
  },
}

/**
 * Waits on a clock.
 * @throws the signal's reason, at once, when it aborts before or during the wait
 */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const timer = clock.setTimer(delayMs, () => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    })
    const onAbort = () => {
      timer.cancel()
      reject(signal?.reason)
    }
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}
