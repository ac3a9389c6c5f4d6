import { describe, expect, test } from 'vitest'
import { compareWithReport, leastTrusted, type ParityResult, ViewTrust } from './view-trust.js'

const window = 8

/** A view that is told one result a second. */
function rig(persistsMs = 2_000) {
  const trust = new ViewTrust({ window, persistsMs })
  let nowMs = 0
  return {
    trust,
    tell(result: ParityResult, times = 1, tokenDifference = 0) {
      let change: string | undefined
      for (let time = 0; time < times; time++) {
        nowMs += 1_000
        change = trust.observe(result, tokenDifference, nowMs) ?? change
      }
      return change
    },
  }
}

describe('a view is believed', () => {
  test('less with each window of persistent disagreement, and more again, step by step, when it agrees', () => {
    const { trust, tell } = rig()
    expect([tell('over-claims', window - 1), trust.state]).toEqual([undefined, 'trusted'])
    expect([tell('over-claims'), trust.state, trust.cause]).toEqual(['worse', 'doubted', 'view-stale'])
    expect([tell('over-claims', window), trust.state]).toEqual(['worse', 'distrusted'])
    expect([tell('over-claims', window), trust.state]).toEqual(['worse', 'distrusted'])
    expect([tell('agrees', window / 2 - 1), trust.state]).toEqual([undefined, 'distrusted'])
    expect([tell('agrees'), trust.state, trust.cause]).toEqual(['better', 'doubted', 'view-stale'])
    expect([tell('agrees', window / 2), trust.state, trust.cause]).toEqual(['better', 'trusted', null])
  })

  test('as before while one in three disagrees', () => {
    const { trust, tell } = rig()
    for (let round = 0; round < 100; round++) {
      tell('agrees', 2)
      tell('over-claims')
    }
    expect(trust.state).toBe('trusted')
  })

  test('as before through a burst, however large, and less when it goes on', () => {
    const trust = new ViewTrust({ window, persistsMs: 10_000 })
    for (let each = 0; each < 1_000; each++) trust.observe('under-claims', 0, 5)
    expect(trust.state).toBe('trusted')
    for (let each = 0; each < window; each++) trust.observe('under-claims', 0, 2_000 * each)
    expect(trust.state).toBe('doubted')
  })
})

describe('the probable cause', () => {
  test.each([
    ['over-claims', 0, 'view-stale'],
    ['under-claims', 0, 'view-incomplete'],
    ['prompt-differs', 7, 'prompt-differs'],
    ['prompt-differs', 1, 'bos-differs'],
    ['prompt-differs', -1, 'bos-differs'],
  ] as const)('of %s by %i is %s', (result, tokenDifference, cause) => {
    const { trust, tell } = rig()
    tell(result, window, tokenDifference)
    expect(trust.cause).toBe(cause)
  })

  test('of prompts that differ now by one token and now by another is the prompt', () => {
    const { trust, tell } = rig()
    for (let each = 0; each < window; each++) tell('prompt-differs', 1, 1 + (each % 2))
    expect(trust.cause).toBe('prompt-differs')
  })
})

test.each([
  [1600, 1600, 1600, 'agrees'],
  [1600, 1584, 1600, 'agrees'], // the last block is computed anew
  [1600, 1440, 1600, 'agrees'], // a tenth
  [1600, 1400, 1600, 'over-claims'],
  [0, 400, 1600, 'under-claims'],
  [0, 0, 1600, undefined],
  [64, 0, 64, 'over-claims'],
  [32, 0, 64, 'agrees'], // two blocks
  [160, null, 1600, undefined],
  [0, 0, 1599, 'prompt-differs'],
  [0, null, 1599, 'prompt-differs'],
] as const)(
  '%i tokens held of 1600 or so, %s reused, %i in the prompt: %s',
  (heldTokens, cachedTokens, promptTokens, expected) => {
    const ours = promptTokens === 1599 ? 1600 : promptTokens
    const predicted = { promptTokens: ours, heldTokens, blockSizeTokens: 16 }
    expect(compareWithReport(predicted, { promptTokens, cachedTokens })).toBe(expected)
  },
)

test('of several ranks the one that is believed least stands for the worker', () => {
  const doubted = { state: 'doubted', cause: 'view-stale' } as const
  const distrusted = { state: 'distrusted', cause: 'view-stale' } as const
  expect(leastTrusted([{ state: 'trusted', cause: null }, distrusted, doubted])).toBe(distrusted)
  expect(leastTrusted([])).toEqual({ state: 'trusted', cause: null })
})
