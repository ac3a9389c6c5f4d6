import fc from 'fast-check'
import { expect, test } from 'vitest'
import { dumps, floatText, repr } from './python-text.js'
import { strip } from './string-methods.js'
import { fromJson } from './values.js'

test('floats read back as themselves', () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
      expect(Number(floatText(value))).toBe(value)
      expect(floatText(value)).toMatch(/[.e]/) // never mistaken for an int
    }),
  )
})

test('json written in any style reads back as the same value', () => {
  const style = fc.record({
    ensureAscii: fc.boolean(),
    indent: fc.constantFrom(undefined, '', '  '),
    sortKeys: fc.boolean(),
  })
  fc.assert(
    fc.property(fc.jsonValue({ noUnicodeString: false }), style, (value, options) => {
      const written = dumps(fromJson(value), options)
      // Both through stringify, which has one zero: whether a text said 0 or -0.0 is no longer known after parsing.
      expect(JSON.parse(JSON.stringify(JSON.parse(written)))).toEqual(JSON.parse(JSON.stringify(value)))
      if (options.ensureAscii) expect(written).toMatch(/^[\x20-\x7e\n]*$/)
    }),
  )
})

test('without options the text is JSON.stringify with blanks behind commas and colons', () => {
  fc.assert(
    fc.property(fc.array(fc.dictionary(fc.stringMatching(/^[a-z]+$/), fc.integer())), (value) => {
      const spaced = JSON.stringify(value).replaceAll(',', ', ').replaceAll(':', ': ')
      expect(dumps(fromJson(value))).toBe(spaced)
    }),
  )
})

test('strip takes away the characters of the set and no others', () => {
  const charArb = fc.constantFrom('a', 'b', ' ', '\n', '🦄', '\ud83e')
  fc.assert(
    fc.property(fc.array(charArb), fc.array(charArb), (units, chars) => {
      const text = Array.from(units.join(''))
      const set = new Set(chars.join(''))
      let [start, end] = [0, text.length]
      while (start < end && set.has(text[start] ?? '')) start += 1
      while (end > start && set.has(text[end - 1] ?? '')) end -= 1
      expect(strip(text.join(''), [...set].join(''))).toBe(text.slice(start, end).join(''))
    }),
  )
})

test('quotes are chosen as Python chooses them', () => {
  const printed = ['a', "it's", 'say "x"', `'"`, '\\\n'].map((text) => repr(fromJson(text)))
  expect(printed).toEqual(["'a'", '"it\'s"', `'say "x"'`, `'\\'"'`, "'\\\\\\n'"])
})
