import { seededRandom } from '@infera/fleet'
import { expect, test } from 'vitest'
import { type PolicyName, policyNames, type RouterSettings } from '../options.js'
import { noHints, workers } from '../testing/policy-rig.js'
import { createPolicy } from './create-policy.js'
import type { PolicyQuestion, Role } from './policy.js'

const settingsOf = (weights: Partial<RouterSettings> = {}) => ({
  settings: { overlapWeight: 1, ...weights } as RouterSettings,
})

const questionOf = (role: Role): PolicyQuestion => ({
  model: 'm',
  role,
  hints: noHints,
  imageKeys: [],
  candidates: workers('a').map((target) => ({
    target,
    requestBlocks: 3,
    overlapBlocks: 0,
    activeBlocks: 0,
    requestsInFlight: 0,
  })),
})

test.each<[PolicyName, boolean]>([
  ['kv-aware', true],
  ['round-robin', false],
  ['least-loaded', false],
])('%s is made by its name, and whether it looks at caches is %s', (name, usesCache) => {
  const policy = createPolicy(name, settingsOf())
  expect([policy.name, policy.usesCache]).toEqual([name, usesCache])
  expect(policy.choose(questionOf('mixed'), seededRandom(1)).index).toBe(0)
})

test('every name that options accept makes a policy of that name', () => {
  expect(policyNames.map((name) => createPolicy(name, settingsOf()).name)).toEqual([...policyNames])
})

test.each([
  [{ overlapWeight: 3 }, [9, 9, 9]],
  [{ prefillOverlapWeight: 20 }, [3, 60, 3]],
  [{ overlapWeight: 3, decodeOverlapWeight: 0 }, [9, 9, 0]],
])('with %j three missed blocks cost %j for mixed, prefill and decode', (weights, costs) => {
  const policy = createPolicy('kv-aware', settingsOf(weights))
  const roles = ['mixed', 'prefill', 'decode'] as const
  const costOf = (role: Role) => policy.choose(questionOf(role), seededRandom(1)).costs?.[0]?.total
  expect(roles.map(costOf)).toEqual(costs)
})
