import { describe, expect, test } from 'vitest'
import { LinkProtocolError } from '../errors.js'
import { CreditBudget, CreditWindow } from './credit-window.js'
import { ResponseStream } from './response-stream.js'

const head = { status: 200, headers: { 'Content-Type': 'text/plain', 'content-length': '3' } }

function newStream(windowBytes = 1_000) {
  const endings: boolean[] = []
  const grants: number[] = []
  const budget = new CreditBudget({
    streamWindowBytes: windowBytes,
    streamWindowMinBytes: windowBytes,
    connectionWindowBytes: 1,
  })
  const window = new CreditWindow(budget, (bytes) => grants.push(bytes))
  window.open()
  const stream = new ResponseStream({ workerId: 'w:1', window, onOver: (cancel) => endings.push(cancel) })
  // Some tests look only at the body.
  stream.response.catch(() => {})
  return { stream, endings, grants, budget }
}

async function drain(body: AsyncIterable<Uint8Array>): Promise<string> {
  let text = ''
  for await (const chunk of body) text += Buffer.from(chunk).toString()
  return text
}

describe('ResponseStream', () => {
  test('is a response with its body, and over without a cancel', async () => {
    const { stream, endings } = newStream()
    stream.acceptHead(head)
    stream.acceptData(Buffer.from('abc'))
    stream.acceptEnd()
    const response = await stream.response
    expect(response).toMatchObject({ status: 200, headers: { 'content-type': 'text/plain' } })
    expect(response.headers).not.toHaveProperty('content-length')
    expect(await drain(response.body)).toBe('abc')
    expect(endings).toEqual([false])
  })

  test('frames out of order are protocol errors, and late ones are ignored', () => {
    const { stream } = newStream()
    expect(() => stream.acceptData(Buffer.from('a'))).toThrow(LinkProtocolError)
    expect(() => stream.acceptEnd()).toThrow(LinkProtocolError)
    stream.acceptHead(head)
    expect(() => stream.acceptHead(head)).toThrow(LinkProtocolError)
    stream.acceptEnd()
    stream.acceptHead(head)
    stream.acceptData(Buffer.from('a'))
    stream.acceptEnd()
    stream.acceptError({ code: 'x', message: 'late' })
    stream.lose('late')
    stream.abort(new Error('late'))
  })

  test.each([
    ['before its head', false, 'INFERA_FLEET_UNREACHABLE'],
    ['after its head', true, 'INFERA_FLEET_BROKEN'],
  ])('a connection lost %s is %3$s', async (_when, hasHead, code) => {
    const { stream, endings } = newStream()
    if (hasHead) {
      stream.acceptHead(head)
      stream.acceptData(Buffer.from('abc'))
    }
    stream.lose('connection closed')
    const failure = hasHead ? drain((await stream.response).body) : stream.response
    await expect(failure).rejects.toMatchObject({ code, workerId: 'w:1', retryable: true })
    expect(endings).toEqual([false])
  })

  test('an error of the worker is thrown after what came before it', async () => {
    const { stream } = newStream()
    stream.acceptHead(head)
    stream.acceptData(Buffer.from('abc'))
    stream.acceptError({ code: 'handlerFailed', message: 'no memory' })
    const body = (await stream.response).body[Symbol.asyncIterator]()
    expect(Buffer.from((await body.next()).value ?? []).toString()).toBe('abc')
    await expect(body.next()).rejects.toMatchObject({ code: 'INFERA_FLEET_WORKER_FAILED' })
  })

  test('a worker that sends beyond its credit breaks the protocol, and many tiny pieces cost what they do', () => {
    const large = newStream(1_000)
    large.stream.acceptHead(head)
    large.stream.acceptData(new Uint8Array(1_000 - 64))
    expect(() => large.stream.acceptData(new Uint8Array(1))).toThrow(LinkProtocolError)
    const tiny = newStream(1_000)
    tiny.stream.acceptHead(head)
    for (let count = 0; count < 15; count++) tiny.stream.acceptData(new Uint8Array(1))
    expect(() => tiny.stream.acceptData(new Uint8Array(1))).toThrow(/costs 65 bytes .* credit for 25/)
  })

  test('what its reader takes is granted again, in halves of the window', async () => {
    const { stream, grants } = newStream(1_000)
    stream.acceptHead(head)
    const body = (await stream.response).body[Symbol.asyncIterator]()
    for (let count = 0; count < 4; count++) stream.acceptData(new Uint8Array(136))
    for (let count = 0; count < 2; count++) await body.next()
    expect(grants).toEqual([])
    await body.next()
    expect(grants).toEqual([600])
    // To a reader that waits it goes at once.
    await body.next()
    for (let count = 0; count < 3; count++) {
      const next = body.next()
      stream.acceptData(new Uint8Array(136))
      await next
    }
    expect(grants).toEqual([600, 600])
  })

  test.each(['end', 'error', 'loss', 'abort', 'return'])(
    'after its %s nothing more is granted, and what was held is given up as it is read or dropped',
    async (how) => {
      const { stream, grants, budget } = newStream(1_000)
      stream.acceptHead(head)
      for (let count = 0; count < 3; count++) stream.acceptData(new Uint8Array(236))
      const { body } = await stream.response
      const iterator = body[Symbol.asyncIterator]()
      if (how === 'end') stream.acceptEnd()
      if (how === 'error') stream.acceptError({ code: 'x', message: 'y' })
      if (how === 'loss') stream.lose('cut')
      if (how === 'abort') stream.abort(new Error('left'))
      if (how === 'return') await iterator.return?.()
      expect(budget.usedBytes).toBe(how === 'abort' || how === 'return' ? 0 : 900)
      await drain({ [Symbol.asyncIterator]: () => iterator }).catch(() => {})
      expect(budget.usedBytes).toBe(0)
      expect(grants).toEqual([])
    },
  )

  test('a piece that waits does not keep its message’s chunk alive', async () => {
    const { stream } = newStream()
    stream.acceptHead(head)
    stream.acceptData(new Uint8Array(65_536).subarray(10, 20))
    const step = await (await stream.response).body[Symbol.asyncIterator]().next()
    expect(step.value?.buffer.byteLength).toBe(10)
  })

  test('a reader that breaks off, and an abort, cancel once', async () => {
    const broken = newStream()
    broken.stream.acceptHead(head)
    broken.stream.acceptData(Buffer.from('abc'))
    for await (const _chunk of (await broken.stream.response).body) break
    broken.stream.abort(new Error('again'))
    expect(broken.endings).toEqual([true])

    const aborted = newStream()
    const reason = new Error('client left')
    aborted.stream.acceptHead(head)
    aborted.stream.acceptData(Buffer.from('abc'))
    aborted.stream.abort(reason)
    await expect(drain((await aborted.stream.response).body)).rejects.toBe(reason)
    expect(aborted.endings).toEqual([true])
  })
})
