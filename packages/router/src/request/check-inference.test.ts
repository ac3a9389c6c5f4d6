import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { InvalidRequestError } from '../errors.js'
import { checkInference } from './check-inference.js'

const chat = '/v1/chat/completions'
const completion = '/v1/completions'
const messages = [{ role: 'user', content: 'hi' }]

describe('bodies that an engine can answer pass', () => {
  test.each([
    [chat, { messages }],
    [
      chat,
      {
        messages: [
          { role: 'assistant', tool_calls: [] },
          { role: 'tool', content: null },
        ],
      },
    ],
    [chat, { messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }, 'b'] }] }],
    [chat, { messages, stream: null, max_tokens: null, n: null, stop: null, tools: null, seed: null }],
    [chat, { messages, stop: ['a', 'b'], max_tokens: 0, temperature: 0.5, tools: [{}], unknown: [1] }],
    [completion, { prompt: '' }],
    [completion, { prompt: ['a', 'b'] }],
    [completion, { prompt: [0, 4294967295] }],
    [completion, { prompt: [[1], [2, 3]] }],
    [completion, { prompt_embeds: 'abc' }],
  ] as const)('%s %j', (path, body) => {
    expect(checkInference(path, { model: 'm', ...body })).toEqual({ model: 'm', isStream: false })
  })

  test('stream is told', () => {
    expect(checkInference(chat, { model: 'm', messages, stream: true }).isStream).toBe(true)
  })
})

test('every other body is an InvalidRequestError, whatever it is', () => {
  const field = fc.anything()
  const bodies = fc.oneof(
    fc.anything(),
    fc.record({ model: field, messages: field, prompt: field }, { requiredKeys: [] }),
    fc.record({
      model: fc.string(),
      messages: fc.array(field),
      prompt: fc.array(field),
      stop: field,
      n: field,
    }),
  )
  fc.assert(
    fc.property(fc.constantFrom(chat, completion), bodies, (path, body) => {
      try {
        const { model } = checkInference(path, body)
        expect(model).not.toBe('')
      } catch (error) {
        expect(error).toBeInstanceOf(InvalidRequestError)
      }
    }),
  )
})

test('a wrong value is described and not repeated', () => {
  const secret = 'a very secret prompt'
  for (const body of [
    { model: { secret } },
    { model: 'm', messages: secret },
    { model: 'm', messages: [secret] },
    { model: 'm', messages: [{ role: secret, content: { secret } }] },
    { model: 'm', messages, stream: secret },
  ]) {
    expect(() => checkInference(chat, body)).toThrow(InvalidRequestError)
    expect(() => checkInference(chat, body)).not.toThrow(secret)
  }
})
