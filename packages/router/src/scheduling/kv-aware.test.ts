import type { RouteTarget } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { blocks, PolicyRig, ranksOf, workers } from '../testing/policy-rig.js'
import { KvAwarePolicy } from './kv-aware.js'

const evenWeights = { mixed: 1, prefill: 1, decode: 1 }

function rigOf(ids: string[], weights = evenWeights) {
  const policy = new KvAwarePolicy(weights)
  return { policy, rig: new PolicyRig(policy, workers(...ids)) }
}

describe('worked examples of the cost function', () => {
  test('1: eight held blocks outweigh six active ones, and what is computed is charged and fades', () => {
    const { policy, rig } = rigOf(['w0', 'w1'])
    rig.hold('w0', blocks(0, 8))
    rig.load('w0', 6)
    rig.load('w1', 1)
    const first = rig.pick({ blocks: blocks(0, 10) })
    expect([first.routeKey, first.total]).toEqual(['w0', 8])
    expect(policy.recentBlocks('w0')).toBe(2)
    first.booking.release()
    const second = rig.pick({ blocks: blocks(0, 10) })
    expect([second.routeKey, second.total]).toEqual(['w0', 10])
    expect(policy.recentBlocks('w0')).toBeCloseTo(3.94, 12)
  })

  test('2: a role has a weight of its own', () => {
    const weights = { mixed: 1, prefill: 50, decode: 1 }
    const busy = (active: number) => {
      const { rig } = rigOf(['w1', 'w2'], weights)
      rig.hold('w1', blocks(0, 2))
      rig.load('w1', active)
      return rig
    }
    expect(busy(5).pick({ blocks: blocks(0, 2), role: 'decode' })).toMatchObject({ routeKey: 'w2', total: 2 })
    expect(busy(50).pick({ blocks: blocks(0, 2), role: 'prefill' })).toMatchObject({
      routeKey: 'w1',
      total: 50,
    })
  })

  test('3: long retention counts double, none asked for counts a tenth', () => {
    const full = () => {
      const { rig } = rigOf(['w1', 'w2'])
      rig.hold('w1', blocks(0, 2))
      rig.load('w1', 3)
      return rig
    }
    const request = { blocks: blocks(0, 2) }
    expect(full().pick(request)).toMatchObject({ routeKey: 'w2', total: 2 })
    expect(full().pick({ ...request, hints: { retention: 'long', isExplicit: true } })).toMatchObject({
      routeKey: 'w1',
      total: 3,
    })
    expect(full().pick({ ...request, hints: { retention: 'short', isExplicit: true } }).routeKey).toBe('w2')

    const partial = () => {
      const { rig } = rigOf(['w1', 'w2'], { mixed: 10, prefill: 10, decode: 10 })
      rig.hold('w1', blocks(0, 1))
      rig.load('w1', 2)
      return rig
    }
    expect(partial().pick({ ...request, hints: { retention: 'none', isExplicit: true } })).toMatchObject({
      routeKey: 'w2',
      total: 2,
    })
    expect(partial().pick({ ...request, hints: { retention: 'none', isExplicit: false } })).toMatchObject({
      routeKey: 'w1',
      total: 12,
    })
  })

  test('4: a cold fleet of three takes turns', () => {
    const { policy, rig } = rigOf(['a', 'b', 'c'])
    const recent = () => ['a', 'b', 'c'].map((id) => policy.recentBlocks(id))
    const serve = (request: number) => rig.serve({ blocks: blocks(request * 100, 10) })
    expect([0, 1, 2, 3].map(serve)).toEqual(['a', 'b', 'c', 'a'])
    for (const [index, value] of [19.1267, 9.409, 9.7].entries())
      expect(recent()[index]).toBeCloseTo(value, 4)
    expect([4, 5].map(serve)).toEqual(['b', 'c'])
    for (const [index, value] of [17.99631, 18.5529, 19.1267].entries())
      expect(recent()[index]).toBeCloseTo(value, 4)
  })

  test('5: prompts shorter than a block take turns too, at one block each', () => {
    const { policy, rig } = rigOf(['a', 'b'])
    const seen = Array.from({ length: 4 }, () => {
      const picked = rig.serve({ blocks: [] })
      return [picked, policy.recentBlocks(picked)] as const
    })
    expect(seen.map(([picked]) => picked)).toEqual(['a', 'b', 'a', 'b'])
    for (const [index, value] of [1, 1, 1.9409, 1.9409].entries())
      expect(seen[index]?.[1]).toBeCloseTo(value, 6)
    expect(policy.recentBlocks('a')).toBeCloseTo(1.882673, 6)
  })

  test('6: ranks of one worker compete like workers', () => {
    const policy = new KvAwarePolicy({ mixed: 1, prefill: 20, decode: 1 })
    const rig = new PolicyRig(policy, ranksOf('d', 3))
    rig.hold('d#dp1', blocks(0, 9))
    expect(rig.pick({ blocks: blocks(0, 10), role: 'prefill' }).routeKey).toBe('d#dp1')
    expect(policy.recentBlocks('d#dp1')).toBe(1)
  })

  test('7: an image sticks to its worker until that is 48 blocks busier', () => {
    const { policy, rig } = rigOf(['a', 'b'])
    const request = { blocks: blocks(0, 3), imageKeys: [7n], hints: { isMultimodal: true } }
    expect(rig.serve(request)).toBe('a')
    const recent = policy.recentBlocks('a')
    const busy = rig.load('a', 47 - recent)
    expect(rig.serve(request)).toBe('a')
    busy.release()
    rig.load('a', 49)
    expect(rig.serve(request)).toBe('b')
  })
})

describe('the choice', () => {
  test('a full prefix wins over a part of it, and a part over nothing, wherever they stand', () => {
    const { rig } = rigOf(['a', 'b', 'c'])
    rig.hold('b', blocks(0, 2))
    rig.hold('c', blocks(0, 4))
    expect(rig.serve({ blocks: blocks(0, 4) })).toBe('c')
    expect(rig.serve({ blocks: blocks(0, 4) }, workers('a', 'b'))).toBe('b')
  })

  test('of equal costs the less loaded wins, though it stands later', () => {
    const { rig } = rigOf(['a', 'b'])
    rig.hold('a', blocks(0, 2))
    rig.load('a', 2)
    expect(rig.pick({ blocks: blocks(0, 4) })).toMatchObject({ routeKey: 'b', total: 4 })
  })

  test('of equal costs and equal loads the first wins', () => {
    const { rig } = rigOf(['a', 'b', 'c'])
    rig.load('a', 1)
    expect(rig.serve({ blocks: blocks(0, 4) })).toBe('b')
  })

  test('a high weight beats load', () => {
    const { rig } = rigOf(['a', 'b'], { mixed: 100, prefill: 1, decode: 1 })
    rig.hold('b', blocks(0, 4))
    rig.load('b', 300)
    expect(rig.serve({ blocks: blocks(0, 4) })).toBe('b')
  })

  test('an image that nobody was sent costs 48 blocks each time it occurs, and retention weighs on it', () => {
    const { rig } = rigOf(['a'])
    const image = { blocks: blocks(0, 9), imageKeys: [1n, 1n] }
    expect(rig.pick({ ...image, hints: { isMultimodal: true } }).total).toBe(96)
    const { rig: fresh } = rigOf(['a'])
    const long = { isMultimodal: true, retention: 'long', isExplicit: true } as const
    expect(fresh.pick({ ...image, hints: long }).total).toBe(192)
  })
})

describe('recent load', () => {
  test('ten blocks have faded away after 303 picks elsewhere', () => {
    const { policy, rig } = rigOf(['a', 'b'])
    rig.serve({ blocks: blocks(0, 10) }, workers('a'))
    const foreign = (count: number) => {
      for (let pick = 0; pick < count; pick++) rig.serve({ blocks: blocks(0, 10) }, workers('b'))
    }
    foreign(302)
    expect(policy.recentBlocks('a')).toBeGreaterThan(0)
    foreign(1)
    expect(policy.recentBlocks('a')).toBe(0)
  })

  test('ten misses with every pick settle at a third of a thousand', () => {
    const { policy, rig } = rigOf(['a'])
    for (let pick = 0; pick < 1000; pick++) rig.serve({ blocks: blocks(0, 10) })
    expect(policy.recentBlocks('a')).toBeCloseTo(333.3, 1)
  })

  test('a fully cached prompt stays put and is charged nothing', () => {
    const { policy, rig } = rigOf(['a', 'b'])
    rig.hold('b', blocks(0, 10))
    expect(Array.from({ length: 20 }, () => rig.serve({ blocks: blocks(0, 10) }))).toEqual(
      Array(20).fill('b'),
    )
    expect(policy.recentBlocks('b')).toBe(0)
  })
})

describe('images', () => {
  const multimodal = { blocks: blocks(0, 4), hints: { isMultimodal: true } }

  test('text that is held counts for nothing beside an image, and is computed and charged all the same', () => {
    const { policy, rig } = rigOf(['a', 'b'])
    rig.hold('b', blocks(0, 2))
    expect(rig.pick({ ...multimodal, imageKeys: [1n] }).routeKey).toBe('a')
    expect(policy.recentBlocks('a')).toBe(4)
    expect(rig.ledger.of('a').activeBlocks).toBe(4)
    expect(rig.serve({ blocks: blocks(0, 2) })).toBe('b')
  })

  test('long retention does not bring text back', () => {
    const { rig } = rigOf(['a', 'b'])
    rig.hold('b', blocks(0, 4))
    rig.load('b', 1)
    expect(
      rig.serve({ ...multimodal, hints: { isMultimodal: true, retention: 'long', isExplicit: true } }),
    ).toBe('a')
  })

  test('a target remembers its last 256 images', () => {
    const { rig } = rigOf(['a', 'b'], { mixed: 100, prefill: 1, decode: 1 })
    for (let key = 0n; key <= 256n; key++) rig.serve({ ...multimodal, imageKeys: [key] }, workers('b'))
    // Image 0 was pushed out by the 257th; image 1 is the oldest that is left.
    expect(rig.serve({ ...multimodal, imageKeys: [1n] })).toBe('b')
    expect(rig.serve({ ...multimodal, imageKeys: [0n] })).toBe('a')
  })

  test('new images balance', () => {
    const { rig } = rigOf(['a', 'b'])
    const picked = Array.from({ length: 10 }, (_, key) =>
      rig.serve({ ...multimodal, imageKeys: [BigInt(key + 1000)] }),
    )
    expect(picked.filter((id) => id === 'a')).toHaveLength(5)
  })
})

describe('forgetting a target', () => {
  test('drops what was remembered of it and of nobody else', () => {
    const { policy, rig } = rigOf(['a', 'b'])
    const image = { blocks: [], imageKeys: [5n], hints: { isMultimodal: true } }
    rig.serve(image, workers('a'))
    rig.serve({ blocks: blocks(0, 10) }, workers('b'))
    policy.forget('a')
    expect(policy.recentBlocks('a')).toBe(0)
    expect(policy.recentBlocks('b')).toBe(10)
    rig.load('a', 11)
    expect(rig.serve(image)).toBe('b')
  })
})

describe('choosing', () => {
  test('changes nothing until it is acted upon', () => {
    const { policy, rig } = rigOf(['a', 'b'])
    const question = {
      model: 'm',
      role: 'mixed' as const,
      hints: { retention: 'none' as const, isExplicit: false, sessionId: null, isMultimodal: false },
      imageKeys: [],
      candidates: workers('a', 'b').map((target) => ({
        target,
        requestBlocks: 9,
        overlapBlocks: 0,
        activeBlocks: 0,
        requestsInFlight: 0,
      })),
    }
    for (let again = 0; again < 3; again++) expect(policy.choose(question).index).toBe(0)
    expect(policy.recentBlocks('a')).toBe(0)
    expect(rig.serve({ blocks: blocks(0, 9) })).toBe('a')
  })

  test('the parts of a cost add up to it', () => {
    const { policy } = rigOf([])
    const target = workers('a')[0] as RouteTarget
    const { costs } = policy.choose({
      model: 'm',
      role: 'mixed',
      hints: { retention: 'long', isExplicit: true, sessionId: null, isMultimodal: false },
      imageKeys: [1n, 1n],
      candidates: [{ target, requestBlocks: 10, overlapBlocks: 4, activeBlocks: 3, requestsInFlight: 1 }],
    })
    expect(costs).toEqual([{ total: 12 + 192 + 3, text: 12, image: 192, load: 3 }])
  })
})
