import { type Clock, sleep } from '@infera/fleet'
import type { Router } from '@infera/router'
import type { PreparedTurn } from './prepare-turns.js'
import { readWhole, StrictSseReader, ToldError, UnreadableAnswerError } from './sse-reader.js'

/** `answered`: to its end; `failed`: with an error that the client saw; `left`: the client went before either. */
export type ClientOutcome = 'answered' | 'failed' | 'left'

/** One request as its client saw it. Times are ms of the run. */
export interface ClientReport {
  readonly requestId: string
  readonly isStreamed: boolean
  readonly outcome: ClientOutcome
  /** null without an answer. */
  readonly status: number | null
  /** What was read of the text. */
  readonly text: string
  readonly expectedText: string
  readonly startedAtMs: number
  /** null when no byte of an answer came. */
  readonly firstByteAtMs: number | null
  readonly endedAtMs: number
  /** What went wrong: a code, or the name of an error. */
  readonly error: string | null
}

interface Progress {
  status: number | null
  text: string
  firstByteAtMs: number | null
}

/** An answer as a client gets it, whichever way it asked. */
interface Answer {
  readonly status: number
  next(): Promise<Uint8Array | undefined>
  /** Reads no more. */
  leave(): Promise<void>
}

/** Asks one question and reads the answer as strictly as can be. Never throws. */
export async function askOnce(router: Router, clock: Clock, prepared: PreparedTurn): Promise<ClientReport> {
  const { turn, expectedText } = prepared
  const { requestId, isStreamed, leavesAfterMs } = turn
  const startedAtMs = clock.now()
  const progress: Progress = { status: null, text: '', firstByteAtMs: null }
  const leaving = new AbortController()
  const timer =
    leavesAfterMs === null ? undefined : clock.setTimer(leavesAfterMs, () => leaving.abort(new Error('left')))
  const report = (outcome: ClientOutcome, error: string | null): ClientReport => ({
    requestId,
    isStreamed,
    outcome,
    ...progress,
    expectedText,
    startedAtMs,
    endedAtMs: clock.now(),
    error,
  })
  try {
    const answer = await (turn.isFetch
      ? fetched(router, prepared, leaving.signal)
      : dispatched(router, prepared, leaving.signal))
    progress.status = answer.status
    await read(answer, prepared, progress, clock, leaving.signal)
    return report('answered', null)
  } catch (error) {
    return leaving.signal.aborted ? report('left', null) : report('failed', nameOf(error))
  } finally {
    timer?.cancel()
  }
}

async function read(
  answer: Answer,
  { turn, path }: PreparedTurn,
  progress: Progress,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const isChat = path === '/v1/chat/completions'
  const isEvents = turn.isStreamed && answer.status === 200
  const reader = new StrictSseReader(isChat)
  const chunks: Uint8Array[] = []
  try {
    for (;;) {
      const chunk = await answer.next()
      if (!chunk) break
      progress.firstByteAtMs ??= clock.now()
      if (isEvents) reader.push(chunk)
      else chunks.push(chunk)
      if (turn.readPauseMs > 0) await sleep(clock, turn.readPauseMs, signal)
    }
    if (isEvents) reader.end()
    else progress.text = readWhole(Buffer.concat(chunks), isChat)
    if (answer.status !== 200) throw new UnreadableAnswerError(`status ${answer.status} without an error`)
  } catch (error) {
    await answer.leave()
    throw error
  } finally {
    if (isEvents) progress.text = reader.text
  }
}

async function dispatched(router: Router, prepared: PreparedTurn, signal: AbortSignal): Promise<Answer> {
  const { path, body, turn } = prepared
  const result = await router.dispatch({ path, body, requestId: turn.requestId }, { signal })
  return {
    status: result.status,
    next: async () => {
      const { done, value } = await result.body.next()
      return done ? undefined : value
    },
    leave: async () => {
      await result.body.return?.()
    },
  }
}

async function fetched(
  router: Router,
  { path, body, turn }: PreparedTurn,
  signal: AbortSignal,
): Promise<Answer> {
  const request = new Request(`http://fleet${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-request-id': turn.requestId },
    body: JSON.stringify(body),
    signal,
  })
  const response = await router.fetch(request)
  const reader = response.body?.getReader()
  return {
    status: response.status,
    next: async () => {
      // Aborting the Request is the client's way out; a read that waits must not outlive it.
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined }
      return done ? undefined : value
    },
    leave: async () => {
      await reader?.cancel()
    },
  }
}

function nameOf(error: unknown): string {
  if (error instanceof ToldError) return error.code
  if (error instanceof UnreadableAnswerError) return `unreadable: ${error.message}`
  if (error instanceof Error) return 'code' in error ? String(error.code) : `${error.name}: ${error.message}`
  return String(error)
}
