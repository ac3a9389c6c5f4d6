import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SseTail } from './sse-tail.js'

function tailOf(...chunks: (string | Uint8Array)[]): SseTail {
  const tail = new SseTail()
  for (const chunk of chunks) tail.push(Buffer.from(chunk as string))
  return tail
}

describe('SseTail', () => {
  test.each([
    ['', true],
    ['data: 1\n\n', true],
    ['data: 1\r\n\r\n', true],
    ['data: 1\r\r', true],
    ['data: 1\n', false],
    ['data: 1\r\n', false],
    ['data: 1\r\n\r', false],
    ['data: 1', false],
    ['data: 1\n\ndata', false],
  ])('%j stands between two events: %s', (text, isBetween) => {
    expect(tailOf(text).isBetweenEvents).toBe(isBetween)
  })

  test.each([
    ['data: [DONE]\n\n', true],
    ['data: [DONE]', true],
    ['data:[DONE]\r\n\r\n', true],
    ['data: 1\n\ndata: [DONE]\n\n', true],
    ['data: [DONE]\n\ndata: 1\n\n', false],
    ['data: {"text":"data: [DONE]"}\n\n', false],
    ['data: {"text":"\\ndata: [DONE]', false],
    ['xdata: [DONE]\n\n', false],
    ['', false],
  ])('%j has said that it is done: %s', (text, isDone) => {
    expect(tailOf(text).isDone).toBe(isDone)
  })

  test('however a stream is split, it says the same', () => {
    const piece = fc.constantFrom('data: 1', 'data: [DONE]', '\n', '\r\n', '\n\n', '猫', 'x'.repeat(70))
    fc.assert(
      fc.property(fc.array(piece), fc.array(fc.nat(200)), (pieces, cuts) => {
        const bytes = Buffer.from(pieces.join(''))
        const whole = tailOf(bytes)
        const ends = [...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length]
        const split = tailOf(...ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end)))
        expect([split.isBetweenEvents, split.isDone]).toEqual([whole.isBetweenEvents, whole.isDone])
      }),
    )
  })
})
