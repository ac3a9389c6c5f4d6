import { describe, expect, test } from 'vitest'
import { blocks, PolicyRig, workers } from '../testing/policy-rig.js'
import { KvAwarePolicy } from './kv-aware.js'

const rigOf = (ids: string[], weight = 1) =>
  new PolicyRig(new KvAwarePolicy({ mixed: weight, prefill: weight, decode: weight }), workers(...ids))

const countOf = (picked: readonly string[], id: string) => picked.filter((each) => each === id).length

describe('kv-aware routing at its extremes', () => {
  test('every request goes to the only holder of its prefix, in whatever order the candidates stand', () => {
    for (const ids of [
      ['a', 'b', 'c'],
      ['c', 'b', 'a'],
    ]) {
      const rig = rigOf(ids)
      rig.hold('b', blocks(0, 10))
      expect(
        countOf(
          Array.from({ length: 20 }, () => rig.serve({ blocks: blocks(0, 10) })),
          'b',
        ),
      ).toBe(20)
    }
  })

  test('two disjoint prefixes are told apart by content', () => {
    const rig = rigOf(['a', 'b'])
    rig.hold('a', blocks(0, 10))
    rig.hold('b', blocks(100, 10))
    const picked = Array.from({ length: 20 }, (_, request) =>
      rig.serve({ blocks: blocks(request % 2 === 0 ? 0 : 100, 10) }),
    )
    expect(picked).toEqual(Array.from({ length: 20 }, (_, request) => (request % 2 === 0 ? 'a' : 'b')))
  })

  test.each([
    [2, 8, 'b'],
    [8, 2, 'a'],
    [0, 1, 'b'],
    [9, 10, 'b'],
  ])('of %i and %i held blocks the longer prefix wins', (heldByA, heldByB, winner) => {
    const rig = rigOf(['a', 'b'])
    rig.hold('a', blocks(0, heldByA))
    rig.hold('b', blocks(0, heldByB))
    expect(rig.serve({ blocks: blocks(0, 10) })).toBe(winner)
  })

  test('a block held behind a hole is worth nothing', () => {
    const rig = rigOf(['a', 'b'])
    rig.hold('b', blocks(1, 9))
    expect(rig.serve({ blocks: blocks(0, 10) })).toBe('a')
  })

  test('requests that come at once to a cold fleet are shared out exactly', () => {
    const rig = rigOf(['a', 'b'])
    const picked = Array.from(
      { length: 20 },
      (_, request) => rig.pick({ blocks: blocks(request * 100, 10) }).routeKey,
    )
    expect(countOf(picked, 'a')).toBe(10)
  })

  test('one block ahead does not make up for two active ones, until they end', () => {
    const rig = rigOf(['a', 'b'])
    rig.hold('a', blocks(0, 1))
    const busy = rig.load('a', 2)
    expect(rig.serve({ blocks: blocks(0, 10) })).toBe('b')
    busy.release()
    expect(rig.serve({ blocks: blocks(0, 10) })).toBe('a')
  })

  test.each([1, 20])('distinct prompts one after the other spread, at weight %i too', (weight) => {
    const rig = rigOf(['a', 'b'], weight)
    const picked = Array.from({ length: 40 }, (_, request) => {
      const prompt = blocks(request * 100, 10)
      const id = rig.serve({ blocks: prompt })
      rig.hold(id, prompt)
      return id
    })
    expect(Math.abs(countOf(picked, 'a') - countOf(picked, 'b'))).toBeLessThanOrEqual(4)
  })

  // 448 requests to one worker and none to the other was seen where each ended before the next began: every tie fell on
  // the first, which then also owned the cache.
  test.each([0, 1, 20])(
    'two hundred distinct prompts split within 35 and 65 in a hundred at weight %i',
    (weight) => {
      const rig = rigOf(['a', 'b'], weight)
      const picked = Array.from({ length: 200 }, (_, request) => {
        const prompt = blocks(request * 1000, 1 + (request % 37))
        const id = rig.serve({ blocks: prompt })
        rig.hold(id, prompt)
        return id
      })
      expect(countOf(picked, 'a')).toBeGreaterThanOrEqual(70)
      expect(countOf(picked, 'a')).toBeLessThanOrEqual(130)
    },
  )

  test('a worker that is left alone is at exactly nothing again after 400 picks elsewhere', () => {
    const policy = new KvAwarePolicy({ mixed: 1, prefill: 1, decode: 1 })
    const rig = new PolicyRig(policy, workers('a', 'b'))
    expect(rig.serve({ blocks: blocks(0, 10) })).toBe('a')
    for (let pick = 1; pick <= 400; pick++) rig.serve({ blocks: blocks(pick * 100, 10) }, workers('b'))
    expect(policy.recentBlocks('a')).toBe(0)
  })

  test('a saturated holder gives up a prompt of which it has only two blocks', () => {
    const rig = rigOf(['a', 'b'])
    rig.hold('a', blocks(0, 2))
    rig.load('a', 50)
    expect(rig.serve({ blocks: blocks(0, 10) })).toBe('b')
  })

  test('prompts that are not known as tokens spread', () => {
    const rig = rigOf(['a', 'b'])
    const picked = Array.from({ length: 30 }, () => rig.serve({ blocks: [] }))
    expect(Math.abs(countOf(picked, 'a') - countOf(picked, 'b'))).toBeLessThanOrEqual(2)
  })

  test('weight 0 balances load and nothing else', () => {
    const rig = rigOf(['a', 'b'], 0)
    rig.hold('a', blocks(0, 10))
    rig.load('a', 1)
    expect(rig.serve({ blocks: blocks(0, 10) })).toBe('b')
  })

  test('two conversations with one system prompt each return to their own worker', () => {
    const rig = rigOf(['a', 'b'])
    const system = blocks(0, 5)
    const turns = (conversation: number, count: number) => [
      ...system,
      ...blocks(1000 * conversation, count * 4),
    ]
    rig.hold('a', turns(1, 6))
    rig.hold('b', turns(2, 6))
    expect(rig.serve({ blocks: turns(1, 7) })).toBe('a')
    expect(rig.serve({ blocks: turns(2, 7) })).toBe('b')
  })
})
