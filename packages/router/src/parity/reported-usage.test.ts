import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { UsageTail, usageInHeaders } from './reported-usage.js'

const usage = { prompt_tokens: 20, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 16 } }
const answer = JSON.stringify({
  id: 'x',
  choices: [{ message: { content: 'hi' } }],
  usage,
  prompt_logprobs: null,
})
const stream = `data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`

function read(text: string, cuts: readonly number[] = []): ReturnType<UsageTail['read']> {
  const tail = new UsageTail()
  const bytes = Buffer.from(text)
  const places = [0, ...[...cuts].sort((a, b) => a - b), bytes.length]
  for (let at = 1; at < places.length; at++) tail.push(bytes.subarray(places[at - 1], places[at]))
  return tail.read()
}

describe('the usage that an answer reports', () => {
  test.each([
    ['in one object', answer],
    ['in the last event of a stream', stream],
    ['behind a quotation of one', answer.replace('hi', '\\"usage\\": {\\"prompt_tokens\\": 1}')],
    ['with blanks', JSON.stringify({ usage }, null, 2)],
  ])('%s, however it is cut into chunks', (_name, text) => {
    fc.assert(
      fc.property(fc.array(fc.nat(Buffer.byteLength(text)), { maxLength: 8 }), (cuts) => {
        expect(read(text, cuts)).toEqual({ promptTokens: 20, cachedTokens: 16 })
      }),
    )
  })

  test.each([
    ['{"usage":{"prompt_tokens":20}}', { promptTokens: 20, cachedTokens: null }],
    ['{"usage":{"prompt_tokens":20,"prompt_tokens_details":null}}', { promptTokens: 20, cachedTokens: null }],
    ['{"usage":null}', undefined],
    ['{"usage":{"prompt_tokens":-1}}', undefined],
    ['{"usage":{"prompt_tokens":2', undefined],
    ['{"choices":[]}', undefined],
    ['', undefined],
  ])('in %s is %j', (text, expected) => {
    expect(read(text)).toEqual(expected)
  })

  test('is found at the end of a long answer, of which only the end is kept', () => {
    const tail = new UsageTail()
    for (let chunk = 0; chunk < 1000; chunk++) tail.push(Buffer.alloc(1000, 97))
    tail.push(Buffer.from(answer))
    expect(tail.read()).toEqual({ promptTokens: 20, cachedTokens: 16 })
  })

  test('whatever bytes go by, reading them throws nothing', () => {
    const piece = fc.oneof(
      fc.string(),
      fc.constantFrom('"usage"', ':', '{', '}', '"', '\\', '"prompt_tokens":1'),
    )
    fc.assert(fc.property(fc.array(piece), (pieces) => void read(pieces.join(''))))
  })
})

test('our own engines say it in the head of an answer', () => {
  const headers = { 'x-infera-prompt-tokens': '20', 'x-infera-cached-tokens': '16' }
  expect(usageInHeaders(headers)).toEqual({ promptTokens: 20, cachedTokens: 16 })
  expect(usageInHeaders({ ...headers, 'x-infera-cached-tokens': '-1' })).toBeUndefined()
  expect(usageInHeaders({})).toBeUndefined()
})
