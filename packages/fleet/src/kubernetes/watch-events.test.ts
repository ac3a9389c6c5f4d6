import fc from 'fast-check'
import { expect, test } from 'vitest'
import { ApiError, ApiFormatError } from './api-error.js'
import { LineSplitter, readWatchEvent } from './watch-events.js'

const line = (type: string, object: unknown) => JSON.stringify({ type, object })
const pod = (version: string) => ({ metadata: { name: 'p', namespace: 'ns', resourceVersion: version } })

test('lines come out whole however the bytes are cut', () => {
  const lineArb = fc.string({ unit: 'grapheme', maxLength: 12 }).map((text) => text.replaceAll('\n', ' '))
  fc.assert(
    fc.property(
      fc.array(lineArb, { maxLength: 8 }),
      lineArb,
      fc.infiniteStream(fc.nat(7)),
      (lines, rest, cuts) => {
        const bytes = Buffer.from(`${lines.map((each) => `${each}\n`).join('')}${rest}`)
        const splitter = new LineSplitter(1_000)
        const seen: string[] = []
        for (let at = 0; at < bytes.length; ) {
          const size = 1 + (cuts.next().value ?? 0)
          seen.push(...splitter.push(bytes.subarray(at, at + size)))
          at += size
        }
        expect(seen).toEqual(lines.filter((each) => each.trim() !== ''))
      },
    ),
  )
})

test('a line above the bound is refused, one at the bound is not, whether or not it has ended', () => {
  expect(new LineSplitter(4).push(Buffer.from('abcd\nabcd\n'))).toEqual(['abcd', 'abcd'])
  expect(() => new LineSplitter(4).push(Buffer.from('abcde\n'))).toThrow(ApiFormatError)
  const splitter = new LineSplitter(4)
  splitter.push(Buffer.from('abc'))
  expect(() => splitter.push(Buffer.from('de'))).toThrow('exceeds 4 bytes')
})

test('events say what became of a Pod, and where a later watch begins', () => {
  expect(readWatchEvent(line('ADDED', pod('7')))).toMatchObject({ type: 'put', version: '7' })
  expect(readWatchEvent(line('MODIFIED', pod('8')))).toMatchObject({ type: 'put', version: '8' })
  expect(readWatchEvent(line('DELETED', pod('9')))).toMatchObject({ type: 'deleted', pod: { name: 'p' } })
  const bookmark = line('BOOKMARK', { kind: 'Pod', metadata: { resourceVersion: '12' } })
  expect(readWatchEvent(bookmark)).toEqual({ type: 'bookmark', version: '12' })
})

test('an ERROR event is an error with its code', () => {
  const error = line('ERROR', { kind: 'Status', code: 410, message: 'too old resource version' })
  expect(() => readWatchEvent(error)).toThrow(
    new ApiError(410, 'the watch was ended with 410: too old resource version'),
  )
  expect(() => readWatchEvent(line('ERROR', 'odd'))).toThrow(ApiError)
})

test.each(['', 'null', '7', '{}', '[]', line('ADDED', null), line('ODD', pod('1')), line('BOOKMARK', {})])(
  'what is no event is refused and not skipped: %s',
  (text) => {
    expect(() => readWatchEvent(text)).toThrow(ApiFormatError)
  },
)

test('any bytes and any cut event are read or answered with an error of ours', () => {
  const whole = line('MODIFIED', { ...pod('1'), status: { phase: 'Running' } })
  const textArb = fc.oneof(
    fc.string(),
    fc.json(),
    fc.nat(whole.length).map((length) => whole.slice(0, length)),
    fc
      .record({ type: fc.constantFrom('ADDED', 'DELETED', 'ERROR', 'BOOKMARK'), object: fc.jsonValue() })
      .map((value) => JSON.stringify(value)),
  )
  fc.assert(
    fc.property(textArb, (text) => {
      try {
        expect(['put', 'deleted', 'bookmark']).toContain(readWatchEvent(text).type)
      } catch (error) {
        expect(error instanceof ApiError || error instanceof ApiFormatError).toBe(true)
      }
    }),
  )
})
