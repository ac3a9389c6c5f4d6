import { type PreparedTurn, readWhole, StrictSseReader } from '@infera/sim'

export interface HttpReport {
  readonly requestId: string
  readonly outcome: 'answered' | 'failed' | 'left'
  readonly status: number | null
  readonly text: string
  readonly expectedText: string
  readonly error: string | null
}

/** Asks a server over HTTP, and reads as strictly as can be. Never throws. */
export async function askOverHttp(url: string, prepared: PreparedTurn): Promise<HttpReport> {
  const { turn, path, body, expectedText } = prepared
  const isChat = path === '/v1/chat/completions'
  const reader = new StrictSseReader(isChat)
  const leaving = new AbortController()
  const timer =
    turn.leavesAfterMs === null ? undefined : setTimeout(() => leaving.abort(), turn.leavesAfterMs)
  let status: number | null = null
  let whole = ''
  const report = (outcome: HttpReport['outcome'], error: string | null): HttpReport => {
    const text = turn.isStreamed ? reader.text : whole
    return { requestId: turn.requestId, outcome, status, text, expectedText, error }
  }
  try {
    const response = await fetch(url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: leaving.signal,
    })
    status = response.status
    if (status !== 200 || !turn.isStreamed) {
      whole = readWhole(new Uint8Array(await response.arrayBuffer()), isChat)
      return report('answered', null)
    }
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) reader.push(chunk)
    reader.end()
    return report('answered', null)
  } catch (error) {
    if (leaving.signal.aborted) return report('left', null)
    return report('failed', error instanceof Error ? error.message : String(error))
  } finally {
    clearTimeout(timer)
  }
}
