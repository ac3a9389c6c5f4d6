import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  encodeAnswer,
  encodeAsk,
  isSync,
  parseAnswer,
  parseAsk,
  parseSync,
  syncPrefix,
} from './snapshot-frames.js'

const hex = (frames: readonly Uint8Array[]) => frames.map((frame) => Buffer.from(frame).toString('hex'))
const protocolHex = Buffer.from('infera.kv.1').toString('hex')

describe('frames of snapshots', () => {
  test('questions and answers are these bytes', () => {
    expect(hex(encodeAsk('open'))).toEqual(['', protocolHex, '6f70656e'])
    expect(hex(encodeAnswer({ type: 'gone' }))).toEqual(['', protocolHex, '676f6e65'])
    const part = {
      type: 'part',
      sequence: -1,
      isLast: true,
      payloads: [Uint8Array.of(1), new Uint8Array()],
    } as const
    expect(hex(encodeAnswer(part))).toEqual(['', protocolHex, '70617274', 'ffffffffffffffff', '01', '01', ''])
  })

  test('answers come back as they were', () => {
    const part = fc.record({
      type: fc.constant('part' as const),
      sequence: fc.oneof(fc.constant(-1), fc.maxSafeNat()),
      isLast: fc.boolean(),
      payloads: fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 5 }),
    })
    fc.assert(
      fc.property(part, (answer) => {
        expect(parseAnswer(encodeAnswer(answer))).toEqual(answer)
      }),
    )
    expect(parseAnswer(encodeAnswer({ type: 'gone' }))).toEqual({ type: 'gone' })
    expect(parseAsk(encodeAsk('open'))).toBe('open')
    expect(parseAsk(encodeAsk('more'))).toBe('more')
  })

  test('answers with a frame cut, left out or made up are an answer or nothing', () => {
    const whole = encodeAnswer({ type: 'part', sequence: 7, isLast: false, payloads: [Uint8Array.of(1, 2)] })
    fc.assert(
      fc.property(fc.nat(whole.length - 1), fc.option(fc.uint8Array({ maxLength: 12 })), (index, other) => {
        const frames = whole.flatMap((frame, at) => (at !== index ? [frame] : other ? [other] : []))
        const answer = parseAnswer(frames)
        if (answer?.type === 'part') expect(answer.sequence).toBeGreaterThanOrEqual(-1)
        parseAsk(frames)
      }),
    )
  })

  test('a subscription to a topic of a reader’s own is answered, any other is not', () => {
    const subscription = (text: string, first = 1) => [Buffer.concat([Buffer.of(first), Buffer.from(text)])]
    expect(parseSync(subscription(`${syncPrefix}abc`))?.toString()).toBe(`${syncPrefix}abc`)
    expect(parseSync(subscription(`${syncPrefix}abc`, 0))).toBeUndefined()
    expect(parseSync(subscription('kv-events'))).toBeUndefined()
    expect(parseSync(subscription(syncPrefix + 'x'.repeat(64)))).toBeUndefined()
    expect(parseSync([])).toBeUndefined()
    expect(isSync([Buffer.from(`${syncPrefix}abc`)])).toBe(true)
    expect(isSync([Buffer.from('kv-events')])).toBe(false)
    expect(isSync([Buffer.from(`${syncPrefix}abc`), Buffer.of(1)])).toBe(false)
  })
})
