import fc from 'fast-check'
import { expect, test } from 'vitest'
import { InvalidFleetOptionsError } from '../errors.js'
import { AcceptedTokens, askToken, tokenDigest, tokensMax } from './tokens.js'

const tokenArb = fc.stringMatching(/^[\x21-\x7e]{1,20}$/)
const accepts = (tokens: AcceptedTokens, token: string) => tokens.accepts(tokenDigest(token))

test('exactly the tokens of the list are accepted, however many there are', () => {
  fc.assert(
    fc.property(
      fc.array(tokenArb, { minLength: 1, maxLength: tokensMax }),
      fc.array(tokenArb),
      (given, tried) => {
        const tokens = new AcceptedTokens(given)
        for (const token of [...given, ...tried, ''])
          expect(accepts(tokens, token)).toBe(given.includes(token))
      },
    ),
  )
})

test('without tokens everybody is let in, until some are set', () => {
  const tokens = new AcceptedTokens(undefined)
  expect(accepts(tokens, '')).toBe(true)
  tokens.set('new')
  expect(accepts(tokens, '')).toBe(false)
  expect(accepts(tokens, 'new')).toBe(true)
})

test('a function is asked again, and only another answer counts as a change', () => {
  let given: string | string[] = 'old'
  const tokens = new AcceptedTokens(() => given)
  expect(accepts(tokens, 'old')).toBe(false)
  expect([tokens.refresh(), tokens.refresh()]).toEqual([true, false])
  given = ['old', 'new']
  expect(tokens.refresh()).toBe(true)
  expect([accepts(tokens, 'old'), accepts(tokens, 'new')]).toEqual([true, true])
})

test.each([[[]], [''], ['two words'], [['ok', 'line\nbreak']], [Array(tokensMax + 1).fill('token')]])(
  'tokens %j are refused without being repeated, and nothing changes',
  (bad) => {
    const tokens = new AcceptedTokens('good')
    for (const source of [bad, () => bad]) {
      expect(() => tokens.set(source)).toThrow(InvalidFleetOptionsError)
      expect(() => tokens.set(source)).not.toThrow(/two words|line/)
    }
    expect(accepts(tokens, 'good')).toBe(true)
    expect(tokens.refresh()).toBe(false)
  },
)

test('a worker asks its function for the token, and what is none is refused without being repeated', async () => {
  expect(await askToken('fixed')).toBe('fixed')
  expect(await askToken(undefined)).toBeUndefined()
  expect(await askToken(async () => 'asked')).toBe('asked')
  await expect(askToken(() => 'not a token')).rejects.toThrow(/option 'token' gave no token/)
  await expect(askToken(() => 'not a token')).rejects.not.toThrow(/not a token/)
})
