import fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  decodeEnvelope,
  EnvelopeError,
  type EnvelopeHead,
  encodeEnvelope,
  encodeRawHead,
  readEngineRequest,
} from './envelope.js'

const head: EnvelopeHead = {
  path: '/v1/chat/completions',
  stream: true,
  headers: { 'x-request-id': 'r' },
  migratable: false,
  method: 'POST',
  deadlineMs: undefined,
  caps: [],
}
const bytes = (text: string) => Buffer.from(text)
const textOf = (body: Uint8Array) => Buffer.from(body).toString()

test('without additions the envelope is the reference’s, key by key', () => {
  expect(textOf(encodeEnvelope(head, bytes('{"model":"m"}')))).toBe(
    '{"path":"/v1/chat/completions","stream":true,"headers":{"x-request-id":"r"},"body":{"model":"m"}}',
  )
  expect(textOf(encodeEnvelope({ ...head, headers: null, migratable: true }, bytes('{}')))).toBe(
    '{"path":"/v1/chat/completions","stream":true,"headers":null,"migratable":true,"body":{}}',
  )
})

test('64-bit numbers and every other byte of a body survive in both directions', () => {
  const body =
    '{ "room" : 9223372036854775807, "f":1.0, "dup":1, "dup":2, "10":1,"2":2,\n"s":"\\u00e9\\"}{" }'
  const read = decodeEnvelope(encodeEnvelope(head, bytes(body)))
  expect(textOf(read.body)).toBe(body)
  expect(read.head).toEqual(head)
})

test('an envelope as Python writes it is read, with keys in any order and defaults for those missing', () => {
  const read = decodeEnvelope(
    bytes('{"body": {"prompt": "}\\"", "room": 18446744073709551615}, "headers": null, "other": [1, {}]}'),
  )
  expect(textOf(read.body)).toBe('{"prompt": "}\\"", "room": 18446744073709551615}')
  expect(read.head).toEqual({
    ...head,
    stream: false,
    headers: null,
  })
  const full = decodeEnvelope(
    bytes(
      '{"path":"/v1/completions","stream":true,"headers":{"X-Data-Parallel-Rank":"3"},"body":{},"migratable":true}',
    ),
  )
  expect(full.head).toMatchObject({
    path: '/v1/completions',
    migratable: true,
    headers: { 'x-data-parallel-rank': '3' },
  })
})

test('any JSON object comes out as the bytes that went in, whatever stands around it', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.jsonValue(), (body, other) => {
      const text = JSON.stringify(body)
      const around = `{"other":${JSON.stringify(other)},"body":${text} , "stream":true}`
      const read = decodeEnvelope(bytes(around))
      expect(textOf(read.body)).toBe(text)
      expect(read.head.stream).toBe(true)
      expect(textOf(decodeEnvelope(encodeEnvelope(head, bytes(text))).body)).toBe(text)
    }),
  )
})

test('a raw body is any bytes at all', () => {
  fc.assert(
    fc.property(fc.uint8Array(), (body) => {
      const headBytes = encodeRawHead({ ...head, method: 'GET', deadlineMs: 17, caps: ['raw'] })
      const read = decodeEnvelope(Buffer.concat([headBytes, body]), headBytes.byteLength)
      expect(Buffer.from(read.body).equals(Buffer.from(body))).toBe(true)
      expect(read.head).toEqual({ ...head, method: 'GET', deadlineMs: 17, caps: ['raw'] })
    }),
  )
})

test('random, truncated and damaged envelopes are read or refused, never anything else', () => {
  const whole = encodeEnvelope({ ...head, migratable: true }, bytes('{"a":[1,"x\\\\\\"",{}]}'))
  const isTried = (payload: Uint8Array, headBytes?: number) => {
    try {
      decodeEnvelope(payload, headBytes)
    } catch (error) {
      expect(error).toBeInstanceOf(EnvelopeError)
    }
  }
  for (let at = 0; at < whole.byteLength; at++) {
    expect(() => decodeEnvelope(whole.subarray(0, at))).toThrow(EnvelopeError)
  }
  fc.assert(
    fc.property(
      fc.nat(whole.byteLength - 1),
      fc.nat(255),
      fc.uint8Array(),
      fc.nat(40),
      (at, byte, noise, cut) => {
        const damaged = Buffer.from(whole)
        damaged[at] = byte
        isTried(damaged)
        isTried(noise)
        isTried(noise, cut)
      },
    ),
  )
})

test('only a JSON object may stand in the reference’s envelope', () => {
  expect(readEngineRequest(bytes('{"stream":true}'))).toEqual({ stream: true })
  expect(readEngineRequest(bytes('{"stream":1}'))).toEqual({ stream: false })
  for (const body of ['', '[]', 'null', '1', '{},"path":"/x"', '{', '\ufeff{}']) {
    expect(readEngineRequest(bytes(body))).toBeUndefined()
  }
  expect(readEngineRequest(Buffer.from('7b2261223a22ff227d', 'hex'))).toBeUndefined()
})
