import fc from 'fast-check'
import { expect, test } from 'vitest'
import { PromptError } from '../../errors.js'
import { FloatNumber } from './float-number.js'
import { scanJson } from './json-scan.js'
import { parseOrderedJson } from './ordered-json.js'
import { jsonDepthMax, parsePromptBody, parsePromptValue } from './prompt-body.js'

/** What JSON.parse would have made of it. */
function plain(value: unknown): unknown {
  if (value instanceof FloatNumber) return value.value
  if (typeof value === 'bigint') return Number(value)
  if (Array.isArray(value)) return value.map(plain)
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, item]) => [key, plain(item)]))
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]))
  return value
}

const outcome = (run: () => unknown): { value: unknown } | 'refused' => {
  try {
    return { value: run() }
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof PromptError) return 'refused'
    throw error
  }
}

const negativeZero = (value: unknown): unknown => JSON.parse(JSON.stringify(value))
const jsonArb = fc.jsonValue({ maxDepth: 5, noUnicodeString: false })
const spaceArb = fc.constantFrom(undefined, 1, '\t')
const fragmentArb = fc.array(
  fc.constantFrom(
    ...['{', '}', '[', ']', ':', ',', '"', '\\', '"a"', '"1"', '"\\u0031"', '"__proto__"'],
    ...['1', '-0', '1.0', '1e3', '9007199254740993', '-', '.', '0', 'e', 'true', 'null', ' ', '\n', 'é'],
  ),
  { maxLength: 12 },
)

test('random JSON values written out read back as JSON.parse reads them', () => {
  fc.assert(
    fc.property(jsonArb, spaceArb, (value, space) => {
      const text = JSON.stringify(value, null, space)
      expect(negativeZero(plain(parsePromptValue(text)))).toEqual(JSON.parse(text))
      expect(negativeZero(plain(parseOrderedJson(text)))).toEqual(JSON.parse(text)) // also where it is not needed
    }),
  )
})

test('what is JSON is decided as JSON.parse decides it', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fragmentArb.map((parts) => parts.join('')),
        fc.string(),
        fc.tuple(jsonArb, fc.nat(60)).map(([value, cut]) => JSON.stringify(value).slice(0, cut)),
      ),
      (text) => {
        const [ours, theirs] = [outcome(() => parsePromptValue(text)), outcome(() => JSON.parse(text))]
        if (theirs === 'refused') expect(ours).toBe('refused')
        else expect(ours).toMatchObject({ value: expect.toSatisfy(() => true) })
        if (ours !== 'refused' && theirs !== 'refused')
          expect(negativeZero(plain(ours.value))).toEqual(negativeZero(theirs.value))
      },
    ),
    { numRuns: 2000 },
  )
})

test('the keys keep the order of the text', () => {
  const entryArb = fc.uniqueArray(
    fc.oneof(fc.nat(20).map(String), fc.constantFrom('a', 'b', '__proto__', '01', '4294967296', '-1')),
    { minLength: 1 },
  )
  fc.assert(
    fc.property(entryArb, fc.boolean(), (keys, isEscaped) => {
      const written = keys.map((key) => {
        const first = `\\u${key.charCodeAt(0).toString(16).padStart(4, '0')}`
        return `"${isEscaped ? first + key.slice(1) : key}" : "v${key}"`
      })
      const value = parsePromptValue(`{${written.join(',')}}`) as object
      const entries = value instanceof Map ? [...value] : Object.entries(value)
      expect(entries).toEqual(keys.map((key) => [key, `v${key}`]))
    }),
  )
})

test('integers keep every digit, and floats stay floats', () => {
  const text = '[9223372036854775808, -9007199254740993, 1.0, 1e3, 2.5, -0, -0.0, 7, 1e400, 1E22]'
  const values = parsePromptValue(text) as unknown[]
  expect(values).toEqual([
    ...[9223372036854775808n, -9007199254740993n, new FloatNumber(1), new FloatNumber(1000), 2.5],
    ...[0, new FloatNumber(-0), 7, Number.POSITIVE_INFINITY, new FloatNumber(1e22)],
  ])
})

test('integers of any size are read exactly', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 90n), max: 2n ** 90n }), (value) => {
      const [read] = parsePromptValue(`[${value}]`) as unknown[]
      expect(typeof read === 'bigint' ? read : BigInt(read as number)).toBe(value)
      const isSafe = value <= BigInt(Number.MAX_SAFE_INTEGER) && value >= -BigInt(Number.MAX_SAFE_INTEGER)
      expect(typeof read).toBe(isSafe ? 'number' : 'bigint')
    }),
  )
})

test('a key that comes twice has its first place and its last value', () => {
  expect(Object.entries(parsePromptValue('{"a":1.0,"b":2,"a":3}') as object)).toEqual([
    ['a', 3],
    ['b', 2],
  ])
  expect([...(parsePromptValue('{"2":1,"1":2,"2":3}') as Map<string, unknown>)]).toEqual([
    ['2', 3],
    ['1', 2],
  ])
})

test('__proto__ is a key as any other', () => {
  const value = parsePromptValue('{"__proto__":{"x":1.0}}') as object
  expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
  expect(Object.keys(value)).toEqual(['__proto__'])
})

test.each([
  '[1, 0.7, "1.0", "-0", {"a1": true}]',
  '{"content": "say \\"2\\": 1.0", "n": -12}',
  '"\\\\"',
  '1',
])('%s needs no parser of ours', (text) => {
  expect(scanJson(text).isLossless).toBe(true)
})

test.each(['1.0', '[-0]', '{"7" :0}', '{"\\u0037":0}', '[0,1E2]', '[9007199254740992]', '[-0.0]'])(
  '%s would lose something',
  (text) => {
    expect(scanJson(text).isLossless).toBe(false)
  },
)

test('what a body reads by name is a plain object, and what only templates see is exact', () => {
  const body = parsePromptBody(
    `{"9": 1, "temperature": 1.0, "stop": {"2": 1.0, "1": 1}, "chat_template_kwargs": {"2": {"2": 1, "1": 2}, "1": 0},
      "messages": [{"2": 1, "role": "assistant", "1": 1.0, "content": [{"5": 0, "type": "text", "text": "x"}],
        "tool_calls": [{"3": 0, "function": {"4": 0, "arguments": {"2": 1, "1": 2}}}]}]}`,
  )
  expect(body).toMatchObject({
    9: 1,
    temperature: 1,
    stop: { 1: 1, 2: 1 },
    chat_template_kwargs: {
      1: 0,
      2: new Map([
        ['2', 1],
        ['1', 2],
      ]),
    },
    messages: [
      {
        role: 'assistant',
        1: new FloatNumber(1),
        content: [{ type: 'text', text: 'x' }],
        tool_calls: [
          {
            function: {
              arguments: new Map([
                ['2', 1],
                ['1', 2],
              ]),
            },
          },
        ],
      },
    ],
  })
})

test.each(['[]', '1', 'null', '"x"'])('a body of %s is refused', (text) => {
  expect(() => parsePromptBody(text)).toThrow('the body must be a JSON object')
})

test('deep nesting and integers beyond the bounds are refused', () => {
  const nested = (depth: number, leaf: string) => '['.repeat(depth) + leaf + ']'.repeat(depth)
  for (const leaf of ['1', '1.0']) {
    expect(outcome(() => parsePromptValue(nested(jsonDepthMax, leaf)))).not.toBe('refused')
    expect(outcome(() => parsePromptValue(nested(jsonDepthMax + 1, leaf)))).toBe('refused')
    expect(outcome(() => parsePromptValue(nested(100_000, leaf)))).toBe('refused')
  }
  expect(outcome(() => parsePromptValue('9'.repeat(4300)))).not.toBe('refused')
  expect(outcome(() => parsePromptValue('9'.repeat(4301)))).toBe('refused')
})

test('errors do not quote the text', () => {
  expect(() => parsePromptBody('{"prompt": tell-nobody}')).toThrow(/^the text is not JSON$/)
})
