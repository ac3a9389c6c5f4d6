import fc from 'fast-check'
import { expect, test } from 'vitest'
import { cancelSubject, kvBucketKey, kvRankOf, kvSubject, natsToken, requestSubject } from './names.js'

test.each([
  ['10.0.0.1:8080', 'MTAuMC4wLjE6ODA4MA'],
  ['host:9000', 'aG9zdDo5MDAw'],
  ['host.example.com:8000', 'aG9zdC5leGFtcGxlLmNvbTo4MDAw'],
  ['[::1]:8080', 'Wzo6MV06ODA4MA'],
  ['10.0.0.5:30000', 'MTAuMC4wLjU6MzAwMDA'],
])('the token of %s is %s', (workerId, token) => {
  expect(natsToken(workerId)).toBe(token)
})

test('subjects and keys are those of the reference', () => {
  expect(requestSubject('host:9000')).toBe('infera.req.aG9zdDo5MDAw')
  expect(cancelSubject('host:9000')).toBe('infera.cancel.aG9zdDo5MDAw')
  expect(kvSubject('host:9000', 3)).toBe('infera.kv.events.aG9zdDo5MDAw.3')
  expect(kvBucketKey('host:9000', 3)).toBe('aG9zdDo5MDAw.3')
})

test('a token is one token of a subject, and the id can be read back from it', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', minLength: 1 }), (workerId) => {
      const token = natsToken(workerId)
      expect(token).toMatch(/^[A-Za-z0-9_-]+$/)
      expect(Buffer.from(token, 'base64url').toString('utf8')).toBe(workerId)
    }),
  )
})

test('a rank is read from event subjects only', () => {
  expect(kvRankOf(kvSubject('host:9000', 0))).toBe(0)
  expect(kvRankOf(kvSubject('host:9000', 4095))).toBe(4095)
  for (const subject of [
    'infera.kv.events.abc',
    'infera.kv.events.abc.x',
    'infera.kv.events.abc.-1',
    'infera.kv.events.abc.01',
    'infera.kv.events.abc.4096',
    'infera.kv.events.a.b.1',
    'infera.req.abc.1',
    '',
  ]) {
    expect(kvRankOf(subject)).toBeUndefined()
  }
})
