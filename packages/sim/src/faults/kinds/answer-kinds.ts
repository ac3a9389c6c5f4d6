import { sleep, type TransportResponse } from '@infera/fleet'
import { InjectedFaultError } from '../../errors.js'
import type { FaultKind } from '../fault.js'
import { paced } from '../held.js'

const encoder = new TextEncoder()

export const answerRefused: FaultKind = {
  name: 'answerRefused',
  port: 'answer',
  meaning: 'requests are answered with `status`; never 400, which would say that the client is wrong',
  draw: (draw) => ({ status: draw.pick([429, 500, 503]) }),
  begin: ({ handler }, { status }) => handler.add(async () => refusal(Number(status))),
}

export const answerLate: FaultKind = {
  name: 'answerLate',
  port: 'answer',
  meaning: 'requests reach the engine `delayMs` late, or its answers leave it that late',
  draw: (draw) => ({ delayMs: draw.int(100, 2_000), isWorkDone: draw.chance(0.5) }),
  begin: ({ handler, clock }, { delayMs, isWorkDone }) =>
    handler.add(async (request, options, next) => {
      if (isWorkDone) {
        const response = await next(request, options)
        await sleep(clock, Number(delayMs), options.signal)
        return response
      }
      await sleep(clock, Number(delayMs), options.signal)
      return next(request, options)
    }),
}

export const answerStutters: FaultKind = {
  name: 'answerStutters',
  port: 'answer',
  meaning: 'a pause of `pauseMs` before every chunk of an answer',
  draw: (draw) => ({ pauseMs: draw.int(20, 200) }),
  begin: ({ handler, clock }, { pauseMs }) =>
    handler.add(async (request, options, next) =>
      paced(await next(request, options), () => sleep(clock, Number(pauseMs), options.signal)),
    ),
}

/** How an answer is cut: with the error of a handler that fails, or as if it were complete, which only a client can tell. */
export const answerCut: FaultKind = {
  name: 'answerCut',
  port: 'answer',
  meaning: 'answers end in the middle of chunk `afterChunks`, with an error or as if they were complete',
  draw: (draw) => ({ afterChunks: draw.int(0, 6), isEndClean: draw.chance(0.4) }),
  begin: ({ handler }, { afterChunks, isEndClean }) =>
    handler.add(async (request, options, next) =>
      rewritten(await next(request, options), (chunk, index) => {
        if (index < Number(afterChunks)) return chunk
        const half = index === 0 ? undefined : chunk.subarray(0, chunk.length >> 1)
        return { last: half, error: isEndClean ? undefined : new InjectedFaultError('the engine broke off') }
      }),
    ),
}

export const answerCorrupted: FaultKind = {
  name: 'answerCorrupted',
  port: 'answer',
  meaning: 'garbage in place of chunk `atChunk`: an event that is no JSON, or bytes that are no text',
  draw: (draw) => ({ atChunk: draw.int(0, 5), isText: draw.chance(0.5) }),
  begin: ({ handler }, { atChunk, isText }) => {
    const garbage = isText
      ? encoder.encode('data: {"choices":[{"ind\n\n')
      : Uint8Array.of(0x64, 0xff, 0xfe, 0xc0, 0x0a, 0x0a)
    return handler.add(async (request, options, next) =>
      rewritten(await next(request, options), (chunk, index) =>
        index === Number(atChunk) ? garbage : chunk,
      ),
    )
  },
}

interface Ending {
  readonly last: Uint8Array | undefined
  readonly error: Error | undefined
}

/** Leaving the source early is what a handler that fails does as well: the engine learns that nobody reads on. */
function rewritten(
  response: TransportResponse,
  rewrite: (chunk: Uint8Array, index: number) => Uint8Array | Ending,
): TransportResponse {
  return { ...response, body: rewrittenBody(response.body, rewrite) }
}

async function* rewrittenBody(
  body: AsyncIterable<Uint8Array>,
  rewrite: (chunk: Uint8Array, index: number) => Uint8Array | Ending,
): AsyncGenerator<Uint8Array> {
  let index = 0
  for await (const chunk of body) {
    const instead = rewrite(chunk, index++)
    if (instead instanceof Uint8Array) {
      yield instead
      continue
    }
    if (instead.last && instead.last.length > 0) yield instead.last
    if (instead.error) throw instead.error
    return
  }
}

function refusal(status: number): TransportResponse {
  const error = { message: 'refused on purpose', type: 'InjectedFault', param: null, code: status }
  const body = encoder.encode(JSON.stringify({ error }))
  return { status, headers: { 'content-type': 'application/json' }, body: once(body) }
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}
