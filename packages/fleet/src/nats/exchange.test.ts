import { headers as natsHeaders } from '@nats-io/transport-node'
import { expect, test } from 'vitest'
import { RequestLimits } from '../http/request-limits.js'
import { VirtualClock } from '../virtual-clock.js'
import { Exchange } from './exchange.js'
import { readReply } from './frames.js'

interface Setup {
  readonly isStream?: boolean
  readonly bufferBytesMax?: number
  readonly signal?: AbortSignal
}

function newExchange(setup: Setup = {}) {
  const clock = new VirtualClock()
  const ended: boolean[] = []
  const { isStream = true, bufferBytesMax = 1_000, signal } = setup
  const limits = new RequestLimits(clock, 'w:1', { idleTimeoutMs: 1_000, totalTimeoutMs: 5_000, signal })
  const onOver = (cancelWorker: boolean) => ended.push(cancelWorker)
  const exchange = new Exchange({ workerId: 'w:1', inbox: 'i', limits, isStream, bufferBytesMax, onOver }, 0)
  const frame = (fields: Record<string, string>, body = '') => {
    const headers = natsHeaders()
    for (const [name, value] of Object.entries(fields)) headers.set(name, value)
    const reply = readReply({ headers, data: Buffer.from(body) })
    if ('bytes' in reply) exchange.accept(reply, clock.now())
  }
  return { clock, exchange, ended, frame }
}

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  let text = ''
  for await (const chunk of body) text += Buffer.from(chunk).toString()
  return text
}

const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  )

test('a stream of events of the reference begins with its first bytes', async () => {
  const { exchange, frame, ended } = newExchange()
  frame({ 'rs-type': 'data' }, 'data: 1\n\n')
  const response = await exchange.response
  expect(response).toMatchObject({ status: 200, headers: { 'content-type': 'text/event-stream' } })
  frame({}, 'data: 2\n\n')
  frame({ 'rs-type': 'done', 'rs-status': '200' })
  expect(await textOf(response.body)).toBe('data: 1\n\ndata: 2\n\n')
  expect(ended).toEqual([false])
})

test('an engine’s refusal of a stream keeps its status, which the reference tells last', async () => {
  const { exchange, frame } = newExchange()
  frame({ 'rs-type': 'data' }, '{"error":{"message":"too long"}}')
  frame({ 'rs-type': 'done', 'rs-status': '400' })
  const response = await exchange.response
  expect(response).toMatchObject({ status: 400, headers: { 'content-type': 'application/json' } })
  expect(await textOf(response.body)).toBe('{"error":{"message":"too long"}}')
})

test('an answer in one piece has the status of its end, 200 when that says none', async () => {
  for (const [status, expected] of [
    ['503', 503],
    [undefined, 200],
  ] as const) {
    const { exchange, frame } = newExchange({ isStream: false })
    frame({ 'rs-type': 'data' }, 'data: looks like events')
    frame(status ? { 'rs-type': 'done', 'rs-status': status } : { 'rs-type': 'done' })
    expect((await exchange.response).status).toBe(expected)
  }
})

test('status and headers that come first are given before the body', async () => {
  const { exchange, frame } = newExchange()
  frame({ 'rs-type': 'data', 'rs-status': '429', 'rs-seq': '0', 'rs-headers': '{"retry-after":"1"}' })
  const response = await exchange.response
  expect(response).toMatchObject({ status: 429, headers: { 'retry-after': '1' } })
  frame({ 'rs-type': 'data', 'rs-seq': '1' }, 'x')
  frame({ 'rs-type': 'done', 'rs-status': '429', 'rs-seq': '2' })
  expect(await textOf(response.body)).toBe('x')
})

test('a missing frame breaks the answer, wherever it is missing, and cancels it at the worker', async () => {
  for (const type of ['data', 'done', 'error']) {
    const { exchange, frame, ended } = newExchange()
    frame({ 'rs-type': 'data', 'rs-status': '200', 'rs-seq': '0' })
    const { body } = await exchange.response
    frame({ 'rs-type': type, 'rs-seq': '2' }, 'x')
    expect(await failure(textOf(body))).toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
    expect(ended).toEqual([true])
  }
})

test('an error frame is the worker’s failure, with its text and status', async () => {
  const { exchange, frame, ended } = newExchange()
  frame({ 'rs-type': 'error', 'rs-status': '503' }, 'infera: worker draining')
  const error = await failure(exchange.response)
  expect(error).toMatchObject({ code: 'INFERA_FLEET_WORKER_FAILED', retryable: true })
  expect(String(error)).toContain('infera: worker draining')
  expect(String(error)).toContain('503')
  expect(ended).toEqual([false])
})

test('an end with another status than the beginning is no good end', async () => {
  const { exchange, frame } = newExchange()
  frame({ 'rs-type': 'data' }, 'data: 1\n\n')
  const { body } = await exchange.response
  frame({ 'rs-type': 'done', 'rs-status': '500' })
  expect(await failure(textOf(body))).toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
})

test('silence is counted from frame to frame and while the reader waits, and cancels', async () => {
  const { exchange, frame, ended, clock } = newExchange()
  clock.advance(999)
  frame({ 'rs-type': 'ack' })
  clock.advance(999)
  frame({ 'rs-type': 'data', 'rs-status': '200' })
  const body = (await exchange.response).body[Symbol.asyncIterator]()
  clock.advance(2_000)
  const next = failure(body.next())
  clock.advance(999)
  expect(ended).toEqual([])
  clock.advance(1)
  expect(await next).toMatchObject({ code: 'INFERA_FLEET_TIMEOUT' })
  expect(ended).toEqual([true])
  expect(clock.pendingTimers).toBe(0)
})

test('a request that takes too long in all is cancelled, however busy it is', async () => {
  const { exchange, frame, ended, clock } = newExchange({ bufferBytesMax: 1e9 })
  frame({ 'rs-type': 'data', 'rs-status': '200' })
  const { body } = await exchange.response
  for (let count = 0; count < 10; count++) {
    clock.advance(500)
    frame({ 'rs-type': 'data' }, 'x')
  }
  expect(await failure(textOf(body))).toMatchObject({ code: 'INFERA_FLEET_TIMEOUT' })
  expect(ended).toEqual([true])
})

test('a reader too far behind breaks the answer with the option to raise, after what was held', async () => {
  const { exchange, frame, ended } = newExchange({ bufferBytesMax: 10 })
  frame({ 'rs-type': 'data', 'rs-status': '200' })
  const { body } = await exchange.response
  frame({ 'rs-type': 'data' }, '12345')
  frame({ 'rs-type': 'data' }, '123456')
  const iterator = body[Symbol.asyncIterator]()
  expect(Buffer.from((await iterator.next()).value ?? []).toString()).toBe('12345')
  const error = await failure(iterator.next())
  expect(error).toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
  expect(String(error)).toContain('bufferBytesMax')
  expect(ended).toEqual([true])
})

test('losing the worker is unreachable before the status and broken after it', async () => {
  const before = newExchange()
  before.exchange.lose('gone')
  expect(await failure(before.exchange.response)).toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
  const after = newExchange()
  after.frame({ 'rs-type': 'data' }, 'data: 1')
  const { body } = await after.exchange.response
  after.exchange.lose('gone')
  expect(await failure(textOf(body))).toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
})
