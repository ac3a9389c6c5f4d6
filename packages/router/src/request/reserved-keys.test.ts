import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { hasReservedKeys, withoutReservedKeys } from './reserved-keys.js'

describe('reserved keys', () => {
  test.each([
    ['{"_infera_a":1}', '{}'],
    ['{ }', '{}'],
    ['{"a":1,"_infera_a":[1,{"b":"]}"}],"c":"_infera_"}', '{"a":1,"c":"_infera_"}'],
    ['{"\\u005finfera_x":{"y":[]},"a":12345678901234567890}', '{"a":12345678901234567890}'],
    ['{"_infera_":"\\"}\\\\","a":"\\\\"}', '{"a":"\\\\"}'],
    ['{"a":{"_infera_b":1.0}}', '{"a":{"_infera_b":1.0}}'],
    ['{"_inferax":1,"infera_":2}', '{"_inferax":1,"infera_":2}'],
    ['{"_infera_a":1,"_infera_a":2,"b":3,"b":4}', '{"b":3,"b":4}'],
  ])('%s becomes %s', (json, expected) => {
    expect(withoutReservedKeys(json)).toBe(expected)
  })

  test('what is left is what parsing and filtering leaves, whatever the body and its blanks', () => {
    const key = fc.oneof(
      fc.string(),
      fc.string().map((text) => `_infera_${text}`),
    )
    const body = fc.dictionary(key, fc.jsonValue())
    fc.assert(
      fc.property(body, fc.constantFrom(undefined, 1, '\t'), (value, indent) => {
        const json = JSON.stringify(value, undefined, indent)
        const parsed = JSON.parse(json) as Record<string, unknown>
        const kept = Object.entries(parsed).filter(([name]) => !name.startsWith('_infera_'))
        const left = JSON.parse(withoutReservedKeys(json)) as Record<string, unknown>
        expect(Object.entries(left)).toEqual(kept)
        expect(hasReservedKeys(parsed)).toBe(kept.length < Object.keys(parsed).length)
        expect(hasReservedKeys(left)).toBe(false)
      }),
    )
  })
})
