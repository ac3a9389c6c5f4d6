import { seededRandom } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { blocks, PolicyRig, ranksOf, workers } from '../testing/policy-rig.js'
import { LeastLoadedPolicy } from './least-loaded.js'
import { RoundRobinPolicy } from './round-robin.js'

const nothing = { blocks: [] }

describe('round-robin', () => {
  test('takes one target after the other, ranks of a worker in their place', () => {
    const rig = new PolicyRig(new RoundRobinPolicy(), [...workers('a'), ...ranksOf('d', 2), ...workers('z')])
    const picked = Array.from({ length: 5 }, () => rig.serve(nothing))
    expect(picked).toEqual(['a', 'd#dp0', 'd#dp1', 'z', 'a'])
  })

  test('each set of candidates has a turn of its own', () => {
    const rig = new PolicyRig(new RoundRobinPolicy(), workers('a', 'b'))
    expect(rig.serve(nothing)).toBe('a')
    expect(rig.serve(nothing, workers('c', 'd'))).toBe('c')
    expect(rig.serve(nothing)).toBe('b')
    expect(rig.serve(nothing, workers('c', 'd'))).toBe('d')
  })

  test('asking does not take a turn', () => {
    const policy = new RoundRobinPolicy()
    const rig = new PolicyRig(policy, workers('a', 'b'))
    rig.serve(nothing)
    const candidates = workers('a', 'b').map((target) => ({
      target,
      requestBlocks: 0,
      overlapBlocks: 0,
      activeBlocks: 0,
      requestsInFlight: 0,
    }))
    const hints = { retention: 'none' as const, isExplicit: false, sessionId: null, isMultimodal: false }
    const question = { model: 'm', role: 'mixed' as const, hints, imageKeys: [], candidates }
    expect([policy.choose(question).index, policy.choose(question).index]).toEqual([1, 1])
    expect(rig.serve(nothing)).toBe('b')
  })

  test('remembers a bounded number of sets, those used last', () => {
    const rig = new PolicyRig(new RoundRobinPolicy(), [])
    const [often, once] = [workers('a', 'b'), workers('c', 'd')]
    rig.serve(nothing, once)
    rig.serve(nothing, often)
    for (let set = 0; set < 256; set++) {
      rig.serve(nothing, workers(`x${set}`, `y${set}`))
      if (set % 100 === 0) rig.serve(nothing, often)
    }
    expect(rig.serve(nothing, once)).toBe('c')
    expect(rig.serve(nothing, often)).toBe('a')
  })

  test('a set that gains a member is a new one, and names that read alike when joined are two', () => {
    const rig = new PolicyRig(new RoundRobinPolicy(), workers('a', 'b'))
    rig.serve(nothing)
    expect(rig.serve(nothing, workers('a', 'b', 'c'))).toBe('a')
    expect(rig.serve(nothing, workers('a,b', 'c'))).toBe('a,b')
    expect(rig.serve(nothing, workers('a', 'b,c'))).toBe('a')
    expect(rig.serve(nothing)).toBe('b')
  })

  test('a target that left takes its sets along', () => {
    const policy = new RoundRobinPolicy()
    const rig = new PolicyRig(policy, workers('a', 'b'))
    rig.serve(nothing)
    policy.forget('b')
    expect(rig.serve(nothing)).toBe('a')
  })
})

describe('least-loaded', () => {
  test('prefers fewer requests, then fewer blocks in flight', () => {
    const rig = new PolicyRig(new LeastLoadedPolicy(), workers('a', 'b', 'c'))
    rig.load('a', 1)
    rig.load('a', 1)
    rig.load('b', 90)
    rig.load('c', 5)
    expect(rig.serve({ blocks: blocks(0, 3) })).toBe('c')
    rig.load('c', 90)
    expect(rig.serve({ blocks: blocks(0, 3) })).toBe('b')
  })

  test('requests one after the other spread over equals', () => {
    const rig = new PolicyRig(new LeastLoadedPolicy(), workers('a', 'b'), seededRandom(7))
    const picked = Array.from({ length: 200 }, () => rig.serve(nothing))
    const toA = picked.filter((id) => id === 'a').length
    expect(toA).toBeGreaterThanOrEqual(70)
    expect(toA).toBeLessThanOrEqual(130)
  })

  test('chance spreads over all who are equal, and is left alone where one is least loaded', () => {
    const spread = new PolicyRig(new LeastLoadedPolicy(), workers('a', 'b', 'c'), seededRandom(7))
    const picked = Array.from({ length: 300 }, () => spread.serve(nothing))
    for (const id of ['a', 'b', 'c']) expect(picked.filter((each) => each === id).length).toBeGreaterThan(70)
    const certain = new PolicyRig(new LeastLoadedPolicy(), workers('a', 'b'), seededRandom(7))
    certain.load('a', 1)
    expect(Array.from({ length: 20 }, () => certain.serve(nothing))).toEqual(Array(20).fill('b'))
  })

  test('the same seed makes the same choices', () => {
    const run = () => {
      const rig = new PolicyRig(new LeastLoadedPolicy(), workers('a', 'b', 'c'), seededRandom(3))
      return Array.from({ length: 50 }, () => rig.serve(nothing))
    }
    expect(run()).toEqual(run())
  })

  test('short requests go past a worker that is stuck in long ones', () => {
    const rig = new PolicyRig(new LeastLoadedPolicy(), workers('a', 'b'))
    for (let long = 0; long < 10; long++) rig.pick(nothing, workers('a'))
    const picked = Array.from({ length: 10 }, () => rig.pick(nothing).routeKey)
    expect(picked).toEqual(Array(10).fill('b'))
  })
})
