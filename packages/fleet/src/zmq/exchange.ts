import type { Clock, Timer } from '../ports/clock.js'
import { formatEndpoint, type ZmqEndpoint } from './endpoints.js'
import type { ZmqSockets } from './sockets.js'

export interface ExchangeOptions {
  readonly sockets: ZmqSockets
  readonly endpoint: ZmqEndpoint
  readonly rank: number
  /** Messages of answers that may wait unread in the socket. */
  readonly receiveHighWaterMark: number
  /** Longest silence between two answers. */
  readonly idleMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
}

export type ExchangeEnd = 'done' | 'silent' | 'refused' | 'aborted'

/**
 * Asks one question at a ROUTER socket and reads answers until one is the last. The socket is of its own and closed at the end.
 * @param accept returns what to send next, if anything, and whether this was the last answer
 */
export async function exchange(
  options: ExchangeOptions,
  question: readonly Uint8Array[],
  accept: (frames: readonly Uint8Array[]) => { isLast: boolean; reply?: readonly Uint8Array[] },
): Promise<ExchangeEnd> {
  const { sockets, endpoint, rank, clock, signal, idleMs } = options
  if (signal.aborted) return 'aborted'
  const dealer = sockets.dealer(endpoint.host, options.receiveHighWaterMark)
  if (!dealer) return 'refused'
  let isSilent = false
  let timer: Timer | undefined
  const close = () => {
    timer?.cancel()
    sockets.close(dealer)
  }
  const rearm = () => {
    timer?.cancel()
    if (dealer.closed) return
    timer = clock.setTimer(idleMs, () => {
      isSilent = true
      close()
    })
  }
  signal.addEventListener('abort', close, { once: true })
  try {
    dealer.connect(formatEndpoint(endpoint, rank))
    rearm()
    await dealer.send([...question])
    for await (const frames of dealer) {
      rearm()
      const { isLast, reply } = accept(frames)
      if (isLast) return 'done'
      if (reply) await dealer.send([...reply])
    }
    return endOf(signal, isSilent)
  } catch (error) {
    // Closing a socket fails what waits in it; an address that cannot be connected to fails at once.
    if (signal.aborted || isSilent || isRefusal(error)) return endOf(signal, isSilent)
    throw error
  } finally {
    signal.removeEventListener('abort', close)
    close()
  }
}

function endOf(signal: AbortSignal, isSilent: boolean): ExchangeEnd {
  if (signal.aborted) return 'aborted'
  return isSilent ? 'silent' : 'refused'
}

/** Errors of the socket itself have a number; others are ours. */
function isRefusal(error: unknown): boolean {
  return error instanceof Error && 'errno' in error
}
