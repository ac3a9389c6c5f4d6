import { expect, test } from 'vitest'
import { PromptError } from '../errors.js'
import { normalizeMessages } from './chat-messages.js'

const code = (run: () => unknown): string => {
  try {
    run()
  } catch (error) {
    if (error instanceof PromptError) return error.code
    throw error
  }
  return 'none'
}

test('text parts are joined by newlines, empty ones left out', () => {
  const content = [
    { type: 'text', text: 'a' },
    { type: 'text', text: '' },
    { type: 'input_text', text: 'b' },
    { type: 'refusal', refusal: 'no' },
    'plain',
  ]
  expect(normalizeMessages([{ role: 'user', content }], 'string')).toEqual([
    { role: 'user', content: 'a\nb\nno\nplain' },
  ])
})

test('a template that walks parts gets every content as text parts', () => {
  const messages = [
    { role: 'user', content: 'a' },
    { role: 'assistant', content: null },
    { role: 'user', content: [{ type: 'output_text', text: 'b', extra: 1 }] },
  ]
  expect(normalizeMessages(messages, 'openai').map(({ content }) => content)).toEqual([
    [{ type: 'text', text: 'a' }],
    [],
    [{ type: 'text', text: 'b' }],
  ])
})

test.each([undefined, null, []])('content of %j is empty text', (content) => {
  expect(normalizeMessages([{ role: 'user', content }], 'string')).toEqual([{ role: 'user', content: '' }])
})

test('arguments of tool calls become objects, absent ones empty objects', () => {
  const call = (args: unknown) => ({ id: 'c', function: { name: 'f', arguments: args } })
  const messages = [
    { role: 'assistant', tool_calls: ['{"a":{"b":1}}', '', null, undefined, { kept: true }].map(call) },
  ]
  expect(normalizeMessages(messages, 'string')).toMatchObject([
    { tool_calls: [{ a: { b: 1 } }, {}, {}, {}, { kept: true }].map(call) },
  ])
})

test.each([[], null])('a tool_calls of %j is left out', (toolCalls) => {
  const [message] = normalizeMessages([{ role: 'assistant', content: 'x', tool_calls: toolCalls }], 'string')
  expect(message).toEqual({ role: 'assistant', content: 'x' })
})

test('reasoning is known to templates under its older name too', () => {
  const [message] = normalizeMessages([{ role: 'assistant', reasoning: 'r', content: 'x' }], 'string')
  expect(message).toMatchObject({ reasoning: 'r', reasoning_content: 'r' })
})

test('the body is never changed', () => {
  const messages = [
    { role: 'user', content: [{ type: 'text', text: 'a' }] },
    { role: 'assistant', content: null, tool_calls: [{ function: { name: 'f', arguments: '{"a":1}' } }] },
  ]
  const before = structuredClone(messages)
  for (const format of ['string', 'openai'] as const) normalizeMessages(messages, format)
  expect(messages).toEqual(before)
})

test.each([
  ['no list', undefined],
  ['an object', {}],
  ['an empty list', []],
  ['a message that is no object', ['hi']],
  ['a message without a role', [{ content: 'x' }]],
  ['content that is a number', [{ role: 'user', content: 3 }]],
  ['a part without a type', [{ role: 'user', content: [{ text: 'x' }] }]],
  ['a part without its text', [{ role: 'user', content: [{ type: 'text' }] }]],
  ['an image', [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }]],
  ['a part named like a property of all objects', [{ role: 'user', content: [{ type: 'toString' }] }]],
  ['arguments that are not JSON', [{ role: 'assistant', tool_calls: [{ function: { arguments: '{' } }] }]],
])('%s cannot be tokenized', (_name, messages) => {
  expect(code(() => normalizeMessages(messages, 'string'))).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
})

test('an error does not quote the prompt', () => {
  const secret = 'tell-nobody'
  const messages = [{ role: 'assistant', tool_calls: [{ function: { name: 'f', arguments: secret } }] }]
  let caught: unknown
  try {
    normalizeMessages(messages, 'string')
  } catch (error) {
    caught = error
  }
  expect(String(caught)).toContain('messages[0].tool_calls[0].function.arguments')
  expect(String(caught)).not.toContain(secret)
  expect((caught as Error).cause).toBeUndefined()
})
