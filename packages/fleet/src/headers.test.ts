import { expect, test } from 'vitest'
import { endToEndHeaders } from './headers.js'

test('headers of one connection are dropped, with those that it names; the rest is kept in lower case', () => {
  expect(
    endToEndHeaders({
      'Content-Type': 'text/plain',
      'Content-Length': '3',
      'Content-Encoding': 'gzip',
      Connection: 'close, X-Hop',
      'x-hop': '1',
      'Transfer-Encoding': 'chunked',
      'Keep-Alive': 'timeout=5',
      Upgrade: 'h2c',
      'x-many': ['a', 'b'],
      'x-none': undefined,
    }),
  ).toEqual({ 'content-type': 'text/plain', 'content-encoding': 'gzip', 'x-many': 'a, b' })
})

test('a header called __proto__ is a header', () => {
  const headers = endToEndHeaders(JSON.parse('{"__proto__":"x","a":"b"}'))
  expect(Object.getPrototypeOf(headers)).toBe(Object.prototype)
  expect(headers.a).toBe('b')
})
