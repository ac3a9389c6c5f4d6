import { expect, test } from 'vitest'
import { withRank, workerRequest } from './worker-request.js'

const path = '/v1/completions'
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8')

test('a body without bytes of its own is sent as JSON, without reserved keys', () => {
  const { body } = workerRequest({ path, body: { model: 'm', prompt: '猫', _infera_x: 1 } }, 'id')
  expect(text(body)).toBe('{"model":"m","prompt":"猫"}')
})

test('the caller’s bytes are sent as they are, not copied', () => {
  const rawBody = Buffer.from('{ "prompt":1e2 }')
  expect(workerRequest({ path, body: { prompt: 100 }, rawBody }, 'id').body).toBe(rawBody)
})

test('reserved keys are cut out of bytes that are part of a larger buffer', () => {
  const rawBody = Buffer.from('xx{"a":1e2,"_infera_b":{}}yy').subarray(2, -2)
  const { body } = workerRequest({ path, body: { a: 100, _infera_b: {} }, rawBody }, 'id')
  expect(text(body)).toBe('{"a":1e2}')
})

test('a header that came twice or empty is not passed on', () => {
  const headers = { traceparent: ['a', 'b'], tracestate: '' }
  const request = workerRequest({ path, body: {}, headers }, 'id')
  expect(Object.keys(request.headers)).toEqual([
    'content-type',
    'accept-encoding',
    'x-request-id',
    'x-infera-request-id',
  ])
})

test('a rank is pinned by a header, also rank 0, and no rank by none', () => {
  const request = workerRequest({ path, body: {} }, 'id')
  expect(withRank(request, 0).headers['x-data-parallel-rank']).toBe('0')
  expect(withRank(request, null)).toBe(request)
  expect(request.headers['x-data-parallel-rank']).toBeUndefined()
})
