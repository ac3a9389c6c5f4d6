import fc from 'fast-check'
import { expect, test } from 'vitest'
import { tinyTokenizer } from '../../test/prompt/tiny-model.js'
import { tokenBoundaries } from './json-boundaries.js'
import { JsonTokenizer } from './json-tokenizer.js'
import { overlappingTexts } from './overlapping-texts.js'

const contentsOf = (json: Record<string, unknown>) => tokenBoundaries(json).map(({ content }) => content)

const withTokens = (tokens: readonly Record<string, unknown>[], more: Record<string, unknown> = {}) => ({
  ...tinyTokenizer(),
  added_tokens: tokens.map((token, index) => ({
    id: 256 + index,
    special: true,
    normalized: false,
    ...token,
  })),
  post_processor: null,
  ...more,
})

test('added tokens that stand alone are boundaries, special or not', () => {
  const json = withTokens([{ content: '<s>' }, { content: '<tool>', special: false }])
  expect(contentsOf(json)).toEqual(['<s>', '<tool>'])
})

test.each<[string, Record<string, unknown>]>([
  ['takes the whitespace before it along', { lstrip: true }],
  ['takes the whitespace behind it along', { rstrip: true }],
  ['begins with a blank', { content: ' x>' }],
  ['ends with a newline', { content: '<x\n' }],
  ['is half a character', { content: '\ud83e' }],
])('a token that %s is none, the others stay', (_name, token) => {
  expect(contentsOf(withTokens([{ content: '<s>' }, { content: '<x>', ...token }]))).toEqual(['<s>'])
})

test('a token that is found after normalising only is none, unless there is nothing to normalise', () => {
  const tokens = [{ content: '<s>', normalized: true }]
  expect(contentsOf(withTokens(tokens))).toEqual(['<s>'])
  expect(contentsOf(withTokens(tokens, { normalizer: { type: 'NFC' } }))).toEqual([])
  const unsaid = [{ content: '<s>', normalized: undefined, special: false }]
  expect(contentsOf(withTokens(unsaid, { normalizer: { type: 'NFC' } }))).toEqual([])
})

test('where a token wants to be a word of its own, nothing is a boundary', () => {
  expect(contentsOf(withTokens([{ content: '<s>' }, { content: 'end', single_word: true }]))).toEqual([])
})

test.each([
  ['Metaspace that prepends to the first part only', { type: 'Metaspace', prepend_scheme: 'first' }, 0],
  ['Metaspace that does not say', { type: 'Metaspace' }, 0],
  ['Metaspace that always prepends', { type: 'Metaspace', prepend_scheme: 'always' }, 1],
  ['Metaspace that never prepends', { type: 'Metaspace', prepend_scheme: 'never' }, 1],
  [
    'a sequence with one of those',
    { type: 'Sequence', pretokenizers: [{ type: 'Digits' }, { type: 'Metaspace', prepend_scheme: 'first' }] },
    0,
  ],
  [
    'a sequence of others',
    { type: 'Sequence', pretokenizers: [{ type: 'Digits' }, { type: 'ByteLevel' }] },
    1,
  ],
  ['a kind that is not known', { type: 'Oracle' }, 0],
  ['no kind at all', 'Digits', 0],
])(
  'with a pre-tokenizer that is %s, there are as many boundaries as are safe',
  (_name, preTokenizer, count) => {
    expect(contentsOf(withTokens([{ content: '<s>' }], { pre_tokenizer: preTokenizer }))).toHaveLength(count)
  },
)

test.each([
  ['holds another', ['<s>', '<s>>', '<b>'], ['<b>']],
  ['begins as another ends', ['<s>', '>x', '<b)'], ['<b)']],
  ['begins as it ends itself', ['aba', '<b>'], ['<b>']],
  ['is there twice', ['<s>', '<s>', '<b>'], ['<b>']],
])('a token that %s is none', (_name, contents, expected) => {
  expect(contentsOf(withTokens(contents.map((content) => ({ content }))))).toEqual(expected)
})

test.each([undefined, 5, [{}], [{ content: 5, id: 1 }], [{ content: 'x'.repeat(257), id: 1 }]])(
  'added tokens that cannot be read give none (%#)',
  (added) => {
    expect(tokenBoundaries({ ...tinyTokenizer(), added_tokens: added })).toEqual([])
  },
)

test('texts that overlap are found as by laying each over each', () => {
  const lies = (a: string, b: string, shift: number) =>
    Array.from(b).every((char, index) => a[index + shift] === undefined || a[index + shift] === char)
  const overlap = (a: string, b: string, isSame: boolean) => {
    for (let shift = -b.length + 1; shift < a.length; shift++)
      if (!(isSame && shift === 0) && lies(a, b, shift)) return true
    return false
  }
  const word = fc.string({ unit: fc.constantFrom('a', 'b', '<'), minLength: 1, maxLength: 4 })
  fc.assert(
    fc.property(fc.uniqueArray(word, { maxLength: 5 }), (texts) => {
      const slow = texts.filter((a, i) => texts.some((b, j) => overlap(a, b, i === j)))
      expect([...overlappingTexts(texts)].sort()).toEqual(slow.sort())
    }),
  )
})

test('cutting a text at a boundary leaves its tokens as they were', () => {
  const content = fc.string({ unit: fc.constantFrom('<', '>', 'a', ' ', '|'), minLength: 1, maxLength: 4 })
  const token = fc.record({ content, lstrip: fc.boolean(), rstrip: fc.boolean(), special: fc.boolean() })
  const preTokenizer = fc.constantFrom(
    { type: 'ByteLevel', add_prefix_space: true, use_regex: true },
    { type: 'ByteLevel', add_prefix_space: false, use_regex: false },
  )
  let cutCount = 0
  const property = fc.property(
    fc.array(token, { minLength: 1, maxLength: 5 }),
    fc.string({ unit: fc.constantFrom('<', '>', 'a', ' ', '|', 'é'), maxLength: 30 }),
    preTokenizer,
    fc.infiniteStream(fc.nat()),
    (tokens, filler, pre, chance) => {
      const tokenizer = new JsonTokenizer(withTokens(tokens, { pre_tokenizer: pre }), {
        promptCharsMax: 1000,
      })
      const next = () => chance.next().value as number
      let text = ''
      for (const char of filler) {
        text += char
        if (next() % 4 === 0) text += tokens[next() % tokens.length]?.content ?? ''
      }
      for (const boundary of tokenizer.boundaries) {
        const parts = text.split(boundary)
        cutCount += parts.length - 1
        const pieces = parts.flatMap((part, index) => (index === 0 ? [part] : [boundary, part]))
        expect(pieces.flatMap((piece) => [...tokenizer.encode(piece)])).toEqual([...tokenizer.encode(text)])
      }
    },
  )
  fc.assert(property, { numRuns: 800 })
  expect(cutCount).toBeGreaterThan(20)
})
