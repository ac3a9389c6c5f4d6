import fc from 'fast-check'
import { expect, test } from 'vitest'
import { rankFile, slowMerge } from '../../../test/prompt/tiny-ranks.js'
import { ModelFolderError, PromptError } from '../../errors.js'
import { mergeByHeap, mergeByScan, mergeBytes } from './byte-pair-merge.js'
import { parseRankTable, type RankTable } from './rank-table.js'
import { encodableParts, textPieces } from './text-pieces.js'
import { type SpecialToken, TiktokenTokenizer } from './tiktoken-tokenizer.js'

const table = (words: readonly string[]): RankTable => parseRankTable(rankFile(words), 'tiktoken.model')

const words = [
  'ab',
  'bc',
  'abc',
  'aa',
  'aaa',
  'cab',
  'He',
  'll',
  'Hell',
  'Hello',
  ' w',
  'or',
  ' wor',
  'é',
  '你好',
]
const ranks = table(words)

const special = (id: number, content: string, isSkipped = true): SpecialToken => ({ id, content, isSkipped })
const base = 256 + words.length
const tokenizer = new TiktokenTokenizer(
  ranks,
  [special(base, '<|end|>'), special(base + 1, '<|end|>>'), special(base + 2, '[tool]', false)],
  { promptCharsMax: 4_000_000 },
)

test('both ways of merging give what merging step by step gives', () => {
  const arb = fc.uniqueArray(
    fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 2, maxLength: 5 }),
    {
      maxLength: 12,
    },
  )
  const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c', 'd'), minLength: 1, maxLength: 80 })
  fc.assert(
    fc.property(arb, text, (tokens, bytes) => {
      const some = table(tokens)
      const expected = slowMerge(bytes, some.byBytes)
      const [byScan, byHeap]: number[][] = [[], []]
      mergeByScan(bytes, some, byScan as number[])
      mergeByHeap(bytes, some, byHeap as number[])
      expect(byScan).toEqual(expected)
      expect(byHeap).toEqual(expected)
    }),
    { numRuns: 500 },
  )
})

test('a whole piece that is a token is that token, even where merging would not lead there', () => {
  const some = table(['xyz']) // no pair of it is a token
  const ids: number[] = []
  mergeBytes('xyz', some, ids)
  expect(ids).toEqual([256])
  expect(slowMerge('xyz', some.byBytes)).toEqual([120, 121, 122])
})

test('one word of a million characters is merged without looking at all pairs again and again', () => {
  let looks = 0
  const counted = {
    tokenBytesMax: 3,
    byBytes: {
      get: (key: string) => {
        looks += 1
        return ranks.byBytes.get(key)
      },
    } as unknown as ReadonlyMap<string, number>,
  }
  const ids: number[] = []
  mergeBytes('a'.repeat(1_000_000), counted, ids)
  expect(ids.length).toBe(500_000) // no pair of pairs is a token
  expect(looks).toBeLessThan(4_000_000)
})

// The counts of the ids that routing specification 2.8 lists for Kimi-K2.6: a piece is at least one token.
test.each([
  ['Hello world', ['Hello', ' world'], 2],
  ['The quick brown fox.', ['The', ' quick', ' brown', ' fox', '.'], 5],
  ['你好,世界!机器学习', ['你好', ',', '世界', '!', '机器学习'], 5],
  ['def foo(x): return x+1', ['def', ' foo', '(x', '):', ' return', ' x', '+', '1'], 8],
  ['  spaces   and\ttabs\n', [' ', ' spaces', '  ', ' and', '\ttabs', '\n'], 7],
])('%j falls into its pieces', (text, pieces, tokenCount) => {
  expect(textPieces(text)).toEqual(pieces)
  expect(pieces.length).toBeLessThanOrEqual(tokenCount)
})

test.each([
  ["I'll they'RE o'clock", ["I'll", " they'RE", ' o', "'clock"]],
  ["it'\u017f", ["it'\u017f"]],
  ['CamelCase HTTPServer', ['Camel', 'Case', ' HTTPServer']],
  ['12345 1', ['123', '45', ' ', '1']],
  ['a中b文', ['a', '中', 'b', '文']],
  ['x\r\n\r\n  y', ['x', '\r\n\r\n', ' ', ' y']],
  ['a\u0085\u0085b', ['a', '\u0085', '\u0085b']],
  ['a\ufeffb', ['a', '\ufeffb']],
  ['!!\n\nx', ['!!\n\n', 'x']],
  ['', []],
])('%j falls into pieces as by the expression of Rust', (text, pieces) => {
  expect(textPieces(text)).toEqual(pieces)
})

const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({ unit: fc.constantFrom('a', 'B', '1', ' ', '\n', '中', '́', '\ufeff', '\u0085', "'", 's') }),
)

test('the pieces of any text, joined, are the text', () => {
  fc.assert(
    fc.property(anyText, (text) => {
      expect(textPieces(text).join('')).toBe(text)
    }),
  )
})

test('the parts of a text are those of the loop in the tokenizer of Kimi', () => {
  const slow = (text: string, limits: { sliceChars: number; runChars: number }): string[] => {
    const isSpace = (char: string) =>
      (/\s/.test(char) || '\x1c\x1d\x1e\x1f\x85'.includes(char)) && char !== '\ufeff'
    const chars = Array.from(text)
    const parts: string[] = []
    for (let from = 0; from < chars.length; from += limits.sliceChars) {
      const slice = chars.slice(from, from + limits.sliceChars)
      let start = 0
      for (let at = 1; at <= slice.length; at++) {
        const tail = slice.slice(start, at)
        const last = tail.at(-1) as string
        const runLength = [...tail].reverse().findIndex((char) => isSpace(char) !== isSpace(last))
        if ((runLength < 0 ? tail.length : runLength) <= limits.runChars) continue
        parts.push(slice.slice(start, at - 1).join(''))
        start = at - 1
      }
      parts.push(slice.slice(start).join(''))
    }
    return parts.length === 0 ? [''] : parts
  }
  const text = fc.string({ unit: fc.constantFrom('a', '🦄', ' ', '\u0085', '\ufeff', '\x1c'), maxLength: 40 })
  fc.assert(
    fc.property(
      text,
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 3, max: 12 }),
      (each, runChars, sliceChars) => {
        expect(encodableParts(each, { sliceChars, runChars })).toEqual(slow(each, { sliceChars, runChars }))
      },
    ),
    { numRuns: 500 },
  )
})

test('a run of 25000 characters stays whole, the next one starts a part', () => {
  expect(encodableParts('x'.repeat(25_001)).map((part) => part.length)).toEqual([25_000, 1])
  expect(encodableParts('x y '.repeat(100_001)).map((part) => part.length)).toEqual([400_000, 4])
})

test('ids decode to the text they were made from', () => {
  const withSpecials = fc
    .array(fc.oneof(anyText, fc.constantFrom('<|end|>', '[tool]', '<|end|>>', '<|', 'Hello wor', '你好')))
    .map((parts) => parts.join(''))
  fc.assert(
    fc.property(withSpecials, (text) => {
      expect(tokenizer.decode(tokenizer.encode(text))).toBe(text)
    }),
  )
})

test('special literals are one token each, the longest first', () => {
  expect([...tokenizer.encode('a<|end|>>b<|end|>[tool]')]).toEqual([97, base + 1, 98, base, base + 2])
})

test('nothing is added at the start or end', () => {
  expect([...tokenizer.encode('')]).toEqual([])
  expect([...tokenizer.encode('a')]).toEqual([97])
})

test('decoding leaves out special tokens when asked to, and ids that do not exist', () => {
  const ids = [97, base, base + 2, 98, 99_999]
  expect(tokenizer.decode(ids)).toBe('a<|end|>[tool]b')
  expect(tokenizer.decode(Uint32Array.from(ids), { skipSpecialTokens: true })).toBe('a[tool]b')
  expect(tokenizer.decode([0xe4, 97])).toBe('\ufffda') // half a character
  expect(tokenizer.decode(tokenizer.encode('\ufeffa'))).toBe('\ufeffa')
})

test('a half of a character is encoded as the replacement character', () => {
  expect(tokenizer.decode(tokenizer.encode('a\ud83e'))).toBe('a\ufffd')
})

test('literals that overlap no other are boundaries, and cutting there changes nothing', () => {
  expect(tokenizer.boundaries).toEqual(['[tool]'])
  fc.assert(
    fc.property(fc.array(anyText, { minLength: 1, maxLength: 4 }), (parts) => {
      const whole = tokenizer.encode(parts.join('[tool]'))
      const pieces = parts.flatMap((part, index) => (index === 0 ? [part] : ['[tool]', part]))
      expect(pieces.flatMap((piece) => [...tokenizer.encode(piece)])).toEqual([...whole])
    }),
  )
})

test('a text beyond promptCharsMax is refused', () => {
  const small = new TiktokenTokenizer(ranks, [], { promptCharsMax: 3 })
  expect(small.encode('abc').length).toBe(1)
  expect(() => small.encode('abcd')).toThrow(PromptError)
})

const a = Buffer.from('a').toString('base64')
test.each([
  ['a line without a blank', `${a}\n`, /line 1: it must be a token in base64/],
  ['a line without a token', ' 5\n', /line 1: it must be/],
  ['base64 that is none', `${a} 0\n!!! 1\n`, /line 2: its token is not base64/],
  ['base64 that lacks its padding', 'YQ 0\n', /line 1: its token is not base64/],
  ['a rank that is no number', `${a} x\n`, /line 1: its rank must be an integer from 0 to 33554431/],
  ['a rank with a sign', `${a} -1\n`, /line 1: its rank/],
  ['a rank too high', `${a} 33554432\n`, /line 1: its rank/],
  ['more than a rank', `${a} 1 2\n`, /line 1: its rank/],
  ['a rank twice', `${a} 0\n\nYg== 0\n`, /line 3: rank 0 is taken already, by line 1/],
  ['a token twice', `${a} 0\n${a} 1\n`, /line 2: the same bytes have rank 0 already/],
  ['a token that is too long', `${'YWFh'.repeat(2000)} 0\n`, /line 1: its token has more than 4096 bytes/],
  [
    'ranks with a hole',
    `${rankFile([])}${Buffer.from('aa').toString('base64')} 300\n`,
    /ranks must be 0 to 256/,
  ],
  ['a byte without a rank', `${a} 0\n`, /no rank for the single byte 0/],
  ['nothing', '', /no rank for the single byte 0/],
])('a rank file with %s is refused, with the line', (_name, text, message) => {
  const parse = () => parseRankTable(text, '/m/tiktoken.model')
  expect(parse).toThrow(ModelFolderError)
  expect(parse).toThrow(message)
  expect(parse).toThrow('/m/tiktoken.model')
})

test('a rank file may end its lines as Windows does, and its last one not at all', () => {
  const text = rankFile(['ab'])
  expect(parseRankTable(text.replaceAll('\n', '\r\n').trimEnd(), 'f')).toEqual(parseRankTable(text, 'f'))
})

test('any other rank file is read or refused with a ModelFolderError', () => {
  const good = rankFile(['ab', 'abc'])
  const cut = fc.nat(good.length).map((length) => good.slice(0, length))
  const changed = fc
    .tuple(fc.nat(good.length - 1), fc.string({ minLength: 1, maxLength: 3 }))
    .map(([at, text]) => good.slice(0, at) + text + good.slice(at + text.length))
  fc.assert(
    fc.property(fc.oneof(cut, changed, fc.string({ unit: 'binary' })), (text) => {
      try {
        expect(parseRankTable(text, 'f').bytesOf.length).toBeGreaterThanOrEqual(256)
      } catch (error) {
        expect(error).toBeInstanceOf(ModelFolderError)
      }
    }),
  )
})
