import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { readWhole, StrictSseReader, ToldError, UnreadableAnswerError } from './sse-reader.js'

const bytes = (text: string) => new TextEncoder().encode(text)
const event = (delta: object, finish: string | null = null, id = 'a') =>
  `data: ${JSON.stringify({ id, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
const role = event({ role: 'assistant', content: '' })
const whole = `${role}${event({ content: 'héllo ' })}${event({ content: '世界' })}${event({}, 'stop')}data: [DONE]\n\n`

function read(text: string | Uint8Array): string {
  const reader = new StrictSseReader(true)
  reader.push(typeof text === 'string' ? bytes(text) : text)
  reader.end()
  return reader.text
}

describe('a strict reader of events', () => {
  test('reads the same whichever way the bytes are cut', () => {
    const all = bytes(whole)
    fc.assert(
      fc.property(fc.array(fc.nat(all.length), { maxLength: 6 }), (cuts) => {
        const reader = new StrictSseReader(true)
        const edges = [0, ...cuts.sort((a, b) => a - b), all.length]
        for (const [index, from] of edges.entries())
          reader.push(all.subarray(from, edges[index + 1] ?? all.length))
        reader.end()
        expect(reader.text).toBe('héllo 世界')
      }),
    )
  })

  test('takes no stream that ends early, wherever that is', () => {
    const all = bytes(whole)
    for (let end = 0; end < all.length; end++) {
      expect(() => read(all.subarray(0, end)), `at ${end}`).toThrow(UnreadableAnswerError)
    }
  })

  test.each([
    ['garbage', `${role}data: {"choices\n\n`],
    ['a line that is no data', `${role}: a comment\n\n`],
    ['a second role', `${role}${role}`],
    ['no role', event({ content: 'x' })],
    ['another answer', `${role}${event({ content: 'x' }, null, 'b')}`],
    ['text after the end', `${role}${event({}, 'stop')}${event({ content: 'x' })}`],
    ['an end mark without a reason', `${role}data: [DONE]\n\n`],
    ['anything after the end mark', `${whole}data: [DONE]\n\n`],
    ['bytes that are no text', Uint8Array.of(0x64, 0xff, 0x0a, 0x0a)],
  ])('takes no %s', (_what, text) => {
    expect(() => read(text)).toThrow(UnreadableAnswerError)
  })

  test('passes on what the server says of a failure, and keeps what came before', () => {
    const reader = new StrictSseReader(true)
    const told = 'data: {"error":{"message":"worker failed","code":"worker_failed_mid_stream"}}\n\n'
    expect(() => reader.push(bytes(`${role}${event({ content: 'x' })}${told}`))).toThrow(ToldError)
    expect(reader.text).toBe('x')
  })
})

test('a whole answer has a text and the reason of its end, or is none', () => {
  const answer = { choices: [{ message: { content: 'x' }, finish_reason: 'stop' }] }
  expect(readWhole(bytes(JSON.stringify(answer)), true)).toBe('x')
  expect(() => readWhole(bytes(JSON.stringify(answer)), false)).toThrow(UnreadableAnswerError)
  expect(() => readWhole(bytes('{"choices":[{"message"'), true)).toThrow(UnreadableAnswerError)
  expect(() => readWhole(bytes('{"error":{"message":"m","code":"no_worker"}}'), true)).toThrow(ToldError)
})
