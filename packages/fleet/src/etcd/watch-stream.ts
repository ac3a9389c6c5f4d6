import type { Etcd3, IWatchResponse } from 'etcd3'
import type { Clock, Timer } from '../ports/clock.js'
import { reasonOf } from './etcd-client.js'

export type WatchStream = Awaited<ReturnType<Etcd3['watchClient']['watch']>>

/** What ended a watch. */
export interface Ending {
  readonly reason: string
  /** Whether etcd may not be there at all. */
  readonly isFailure: boolean
}

export interface WatchRange {
  readonly key: Buffer
  readonly range_end: Buffer
  /** First revision that is told, an int64 as text. */
  readonly start_revision: string
}

export interface WatchLimits {
  readonly clock: Clock
  readonly requestTimeoutMs: number
  readonly livenessMs: number
  readonly pingIntervalMs: number
}

export interface WatchEvents {
  /** Asks etcd for anything. A rejection ends the watch. */
  ping(): Promise<void>
  /** etcd has taken the watch on: from here on every change comes. */
  onOpen(): void
  onResponse(response: IWatchResponse): void
}

/**
 * One watch on a stream of its own, until anything ends it. The library's watchers share one stream and throw into it when they get
 * an answer that they do not expect, which nobody can catch; and they do not survive one that was refused.
 */
export async function watchKeys(
  stream: WatchStream,
  range: WatchRange,
  limits: WatchLimits,
  signal: AbortSignal,
  events: WatchEvents,
): Promise<Ending> {
  const { clock, requestTimeoutMs, livenessMs, pingIntervalMs } = limits
  let silence: Timer | undefined
  let ping: Timer | undefined
  let onAbort = () => {}
  let isOver = false
  try {
    return await new Promise<Ending>((resolve) => {
      const end = (reason: string, isFailure: boolean) => {
        isOver = true
        resolve({ reason, isFailure })
      }
      const fail = (error: unknown) => end(reasonOf(error), true)
      const giveUpAfter = (delayMs: number, reason: string, isFailure: boolean) => {
        silence?.cancel()
        silence = clock.setTimer(delayMs, () => end(reason, isFailure))
      }
      const ask = () => {
        ping = clock.setTimer(pingIntervalMs, () => {
          if (isOver) return
          // Answered on the stream itself, by all that know it (3.4 on): proof that this very watch still speaks.
          stream.write({ progress_request: {} })
          events.ping().then(() => !isOver && ask(), fail)
        })
      }
      onAbort = () => end('discovery was closed', false)
      if (signal.aborted) return onAbort()
      signal.addEventListener('abort', onAbort, { once: true })
      stream.on('error', (error: unknown) => !isOver && fail(error))
      stream.on('end', () => end('etcd ended the watch', true))
      stream.on('data', (response: IWatchResponse) => {
        if (isOver) return
        if (response.canceled) return end(whyCanceled(response), true)
        giveUpAfter(livenessMs, `nothing was heard for ${livenessMs} ms`, false)
        if (response.created) {
          events.onOpen()
          ask()
        }
        events.onResponse(response)
      })
      giveUpAfter(requestTimeoutMs, `etcd took no watch on within ${requestTimeoutMs} ms`, true)
      stream.write({ create_request: { ...range, progress_notify: true } })
    })
  } finally {
    isOver = true
    silence?.cancel()
    ping?.cancel()
    signal.removeEventListener('abort', onAbort)
    // It says that it was cancelled, as an error, to the listener above.
    stream.cancel()
  }
}

function whyCanceled({ cancel_reason: reason, compact_revision: compacted }: IWatchResponse): string {
  if (compacted !== '0') {
    return `etcd cancelled the watch: what came before revision ${compacted} was compacted`
  }
  return `etcd cancelled the watch: ${reason || 'it gave no reason'}`
}
