import { headers } from '@nats-io/transport-node'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readPublishAck, readReply, replyHeaders } from './frames.js'

const data = (text: string) => Buffer.from(text)

test('header names are lower case on the wire, and nothing but rs-type and rs-status is there unless asked for', () => {
  expect(replyHeaders('done', { status: 404 }).toString()).toBe(
    'NATS/1.0\r\nrs-type: done\r\nrs-status: 404\r\n\r\n',
  )
  expect(replyHeaders('data').toString()).toBe('NATS/1.0\r\nrs-type: data\r\n\r\n')
})

test.each([
  ['success', '{"stream":"INFERA_REQUESTS","seq":7}', 7],
  ['success with a space', '{"stream":"INFERA_REQUESTS", "seq":7}', 7],
  ['a duplicate', '{"stream":"INFERA_REQUESTS","seq":7,"duplicate":true}', 7],
  ['a long domain', `{"stream":"INFERA_REQUESTS","domain":"${'d'.repeat(300)}","seq":7}`, 7],
  [
    'a refusal',
    '{"error":{"code":503,"err_code":10077,"description":"x"},"stream":"INFERA_REQUESTS","seq":0}',
    undefined,
  ],
  ['a refusal without stream', '{"error":{"code":400,"description":"x"}}', undefined],
])('the broker’s receipt is recognised: %s', (_name, text, sequence) => {
  expect(readReply({ data: data(text) })).toMatchObject({ type: 'publishAck', sequence })
})

test.each([
  'data: {"stream":"INFERA_REQUESTS","seq":7}\n\n',
  '{"id":"cmpl","object":"chat.completion"}',
  '{"error":{"message":"no such model","type":"NotFoundError","code":404}}',
  '{"stream":true,"seq":1}',
  '{"stream":"x"}',
  '{not json',
  `{"stream":"x","seq":1,"pad":"${'x'.repeat(5000)}"}`,
  '',
])('an answer without rs-type is data and never swallowed: %s', (text) => {
  expect(readReply({ data: data(text) })).toMatchObject({ type: 'data' })
})

test('with rs-type even what looks like a receipt is what it says', () => {
  const text = '{"stream":"INFERA_REQUESTS","seq":7}'
  const reply = readReply({ data: data(text), headers: replyHeaders('data') })
  expect(reply).toMatchObject({ type: 'data', status: undefined })
})

test('an empty message with status 503 says that nobody listens', () => {
  expect(readReply({ data: data(''), headers: headers(503, 'No Responders') })).toEqual({
    type: 'noResponders',
  })
  expect(readReply({ data: data('x'), headers: headers(503, 'No Responders') })).toMatchObject({
    type: 'data',
  })
})

test('types that nobody knows are unknown', () => {
  const strange = headers()
  strange.set('rs-type', 'later')
  expect(readReply({ data: data('x'), headers: strange })).toEqual({ type: 'unknown' })
})

test('what is written is read, headers in any script among it', () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.stringMatching(/^[a-z-]{1,10}$/), fc.string({ unit: 'grapheme' })),
      fc.nat(999),
      fc.nat(),
      (responseHeaders, status, sequence) => {
        const fields = { status, sequence, headers: { ...responseHeaders } }
        const reply = readReply({ data: data('x'), headers: replyHeaders('data', fields) })
        expect(reply).toMatchObject({ type: 'data', status, sequence })
        expect('headers' in reply && { ...reply.headers }).toEqual({ ...responseHeaders })
      },
    ),
  )
})

test('random bytes are no receipt and break nothing', () => {
  fc.assert(
    fc.property(fc.uint8Array(), fc.string(), (noise, text) => {
      expect(readPublishAck(noise)).toBeUndefined()
      const strange = headers()
      strange.set('rs-type', 'data')
      for (const name of ['rs-status', 'rs-seq', 'rs-headers', 'rs-part']) {
        strange.set(name, text.replace(/[\r\n]/g, ''))
      }
      expect(readReply({ data: noise, headers: strange }).type).toBe('data')
    }),
  )
})
