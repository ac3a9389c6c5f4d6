import { expect, test } from 'vitest'
import { planConversations } from './plan-conversations.js'

test('a workload is the same for the same seed, has the requests that it was asked for, and each id once', () => {
  const plan = planConversations({ seed: 3, requests: 500 })
  expect(planConversations({ seed: 3, requests: 500 })).toEqual(plan)
  expect(planConversations({ seed: 4, requests: 500 })).not.toEqual(plan)
  const ids = plan.flatMap(({ turns }) => turns.map(({ requestId }) => requestId))
  expect(ids).toHaveLength(500)
  expect(new Set(ids).size).toBe(500)
})

test('ratios of 0 and 1 mean none and all', () => {
  const none = planConversations({
    requests: 50,
    streamRatio: 0,
    fetchRatio: 0,
    cancelRatio: 0,
    slowRatio: 0,
    chatRatio: 0,
  })
  for (const { isChat, turns } of none) {
    expect(isChat).toBe(false)
    for (const turn of turns)
      expect(turn).toMatchObject({ isStreamed: false, isFetch: false, leavesAfterMs: null, readPauseMs: 0 })
  }
  const all = planConversations({
    requests: 50,
    streamRatio: 1,
    fetchRatio: 1,
    cancelRatio: 1,
    slowRatio: 1,
    chatRatio: 1,
  })
  for (const { isChat, turns } of all) {
    expect(isChat).toBe(true)
    for (const turn of turns) {
      expect(turn).toMatchObject({ isStreamed: true, isFetch: true, readPauseMs: 60 })
      expect(turn.leavesAfterMs).toBeGreaterThanOrEqual(0)
    }
  }
})

test('names the option that is wrong', () => {
  expect(() => planConversations({ turnsMin: 3, turnsMax: 2 })).toThrow("option 'turnsMax'")
  expect(() => planConversations({ streamRatio: 2 })).toThrow("option 'streamRatio'")
})
