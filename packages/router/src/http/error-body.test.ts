import { describe, expect, test } from 'vitest'
import * as errors from '../errors.js'
import { errorAnswer, methodNotAllowed, notFound } from './error-body.js'

describe('what a client is told of an error', () => {
  const failed = { workerId: 'w', attempts: 2 }
  test.each([
    [new errors.InvalidRequestError('n', 'bad'), 400, 'invalid_request_error', 'n', 'invalid_request'],
    [new errors.UnknownModelError('x'), 404, 'invalid_request_error', 'model', 'model_not_found'],
    [new errors.BodyTooLargeError(5), 413, 'invalid_request_error', null, 'request_too_large'],
    [new errors.OverloadedError(5), 429, 'server_error', null, 'overloaded'],
    [new errors.NoWorkerError('x'), 503, 'server_error', null, 'no_worker'],
    [new errors.RouterClosedError('closed'), 503, 'server_error', null, 'shutting_down'],
    [
      new errors.WorkersFailedError({ ...failed, status: 504, isMidStream: false }),
      504,
      'server_error',
      null,
      'workers_failed',
    ],
    [
      new errors.WorkersFailedError({ ...failed, status: 502, isMidStream: true }),
      502,
      'server_error',
      null,
      'worker_failed_mid_stream',
    ],
  ])('%s', (error, status, type, param, code) => {
    const answer = errorAnswer(error)
    expect(answer.status).toBe(status)
    expect(answer.body.error).toEqual({ message: error.message, type, param, code })
    const isWorthRetrying = status === 429 || status === 503
    expect(answer.headers).toEqual(isWorthRetrying ? { 'retry-after': '1' } : {})
  })

  test('the text of errors that are not ours stays inside', () => {
    const answer = errorAnswer(new Error('password is hunter2'))
    expect(answer.status).toBe(500)
    expect(JSON.stringify(answer)).not.toContain('hunter2')
  })

  test('text that a client gave is not repeated at any length', () => {
    const long = 'x'.repeat(10_000)
    for (const { body } of [
      notFound(long, '/v1'),
      errorAnswer(new errors.UnknownModelError(long)),
      errorAnswer(new errors.NoWorkerError(long)),
    ])
      expect(body.error.message.length).toBeLessThan(500)
  })

  test('what cannot be done with a path names what can', () => {
    expect(methodNotAllowed('PUT', 'POST')).toMatchObject({
      status: 405,
      headers: { allow: 'POST' },
      body: { error: { message: 'PUT is not possible here; use POST' } },
    })
  })
})
