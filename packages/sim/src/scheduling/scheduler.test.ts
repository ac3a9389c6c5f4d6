import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { blockBytes } from '../cache/block-pool.js'
import { CacheMirror } from '../testing/cache-mirror.js'
import { answerAlone } from '../testing/lone-engine.js'
import { answerOf, SchedulerRig } from '../testing/scheduler-rig.js'

const blockSizeTokens = 4
const prompt = (length: number, first = 0) => Array.from({ length }, (_, index) => first + index)
const rigOf = (options: Partial<ConstructorParameters<typeof SchedulerRig>[0]> = {}) =>
  new SchedulerRig({ blocks: 64, blockSizeTokens, sequencesMax: 8, stepTokensMax: 16, ...options })

/** Requests that share beginnings: each prompt is a piece of one of two texts. */
const workloadArb = fc.record({
  blocks: fc.integer({ min: 10, max: 40 }),
  sequencesMax: fc.integer({ min: 1, max: 6 }),
  stepTokensMax: fc.integer({ min: 1, max: 24 }),
  requests: fc.array(
    fc.record({
      text: fc.constantFrom(0, 1),
      length: fc.integer({ min: 1, max: 26 }),
      answer: fc.integer({ min: 1, max: 12 }),
      stepsBefore: fc.integer({ min: 0, max: 4 }),
      abortAfter: fc.option(fc.integer({ min: 0, max: 20 }), { freq: 6 }),
    }),
    { minLength: 1, maxLength: 14 },
  ),
})

describe('content', () => {
  test('any schedule, caching and preemption gives every request the answer that it gets alone', () => {
    let preemptions = 0
    let hits = 0
    fc.assert(
      fc.property(workloadArb, ({ requests, ...limits }) => {
        const rig = rigOf(limits)
        const sequences = requests.map(({ text, length, answer, stepsBefore, abortAfter }) => {
          for (let count = 0; count < stepsBefore; count++) rig.step()
          const sequence = rig.add(prompt(length, text * 3), answer)
          return { sequence, abortAfter }
        })
        for (let step = 0; rig.step(); step++) {
          for (const { sequence, abortAfter } of sequences) if (abortAfter === step) sequence.isAborted = true
        }
        for (const { sequence } of sequences) {
          const { promptTokens, answerTokensMax } = sequence.request
          const alone = answerAlone(rig.model, promptTokens, { answerTokensMax, blockSizeTokens })
          if (!sequence.isAborted) expect(answerOf(sequence)).toEqual(alone)
          else expect(alone.slice(0, sequence.generated)).toEqual(answerOf(sequence))
          expect(sequence.cachedTokens ?? 0).toBeLessThan(sequence.promptLength)
        }
        preemptions += rig.metrics.preemptions
        hits += rig.metrics.prefixHits
        expect(rig.pool.usedBlocks).toBe(0)
        expect(rig.scheduler.running).toEqual([])
        expect(rig.scheduler.waiting).toEqual([])
      }),
      { numRuns: 300 },
    )
    // The workloads have to reach what the sentence speaks of.
    expect(preemptions).toBeGreaterThan(0)
    expect(hits).toBeGreaterThan(0)
  })

  test('one flipped byte in any cached block changes the answer', () => {
    const tokens = prompt(33)
    const intact = rigOf()
    const expected = intact.add(tokens, 12)
    intact.runToEnd()
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 7 }),
        fc.nat(blockBytes - 1),
        fc.integer({ min: 1, max: 255 }),
        (index, byte, flip) => {
          const rig = rigOf()
          rig.add(tokens, 1)
          rig.runToEnd()
          const again = rig.add(tokens, 12)
          rig.scheduler.planStep()
          rig.pool.bytes[again.chain[index]! * blockBytes + byte]! ^= flip
          rig.runToEnd()
          expect(again.cachedTokens).toBe(32)
          expect(answerOf(again)).not.toEqual(answerOf(expected))
        },
      ),
      { numRuns: 60 },
    )
  })

  test('a block of another prompt in the place of the right one changes the answer', () => {
    const rig = rigOf()
    const right = rig.add(prompt(17), 12)
    rig.runToEnd()
    rig.add(prompt(17, 100), 1)
    rig.runToEnd()
    const again = rig.add(prompt(17), 12)
    rig.scheduler.planStep()
    const block = again.chain[1]!
    const other = again.chain[2]!
    rig.pool.bytes.copyWithin(block * blockBytes, other * blockBytes, (other + 1) * blockBytes)
    rig.runToEnd()
    expect(answerOf(again)).not.toEqual(answerOf(right))
  })

  test('seeds of the model and of the request change the answer, the instance does not', () => {
    const answer = (options: { seed?: number; instanceId?: string }, requestSeed = 0) => {
      const rig = rigOf(options)
      const sequence = rig.add(prompt(9), 12, requestSeed)
      rig.runToEnd()
      return answerOf(sequence)
    }
    const first = answer({ instanceId: 'a' })
    expect(answer({ instanceId: 'b' })).toEqual(first)
    expect(answer({ seed: 1 })).not.toEqual(first)
    expect(answer({ seed: 2 ** 40 })).not.toEqual(first)
    expect(answer({}, 5)).not.toEqual(first)
  })
})

describe('steps', () => {
  test('decoding requests come first, then prompt chunks in arrival order up to the budget', () => {
    const rig = rigOf({ stepTokensMax: 10 })
    const first = rig.add(prompt(6), 5)
    const second = rig.add(prompt(14, 100), 5)
    const third = rig.add(prompt(5, 200), 5)
    expect(rig.step()).toEqual({
      decoding: [],
      chunks: [
        { sequence: first, context: 0, tokens: 6 },
        { sequence: second, context: 0, tokens: 4 },
      ],
    })
    expect(first.generated).toBe(1)
    expect(rig.step()).toEqual({
      decoding: [first],
      chunks: [{ sequence: second, context: 4, tokens: 9 }],
    })
    expect(rig.step()).toEqual({
      decoding: [first],
      chunks: [
        { sequence: second, context: 13, tokens: 1 },
        { sequence: third, context: 0, tokens: 5 },
      ],
    })
  })

  test('a request whose whole prompt is cached still computes its last block', () => {
    const rig = rigOf()
    rig.add(prompt(16), 1)
    rig.runToEnd()
    const again = rig.add(prompt(16), 1)
    const [plan] = rig.runToEnd()
    expect(again.cachedTokens).toBe(12)
    expect(plan?.chunks).toEqual([{ sequence: again, context: 12, tokens: 4 }])
  })

  test('two equal prompts in one step end up sharing their blocks', () => {
    const rig = rigOf({ stepTokensMax: 64 })
    rig.add(prompt(13), 9)
    rig.add(prompt(13), 9)
    rig.step()
    expect(rig.pool.cachedBlocks).toBe(3)
    expect(rig.pool.usedBlocks).toBe(3 + 2)
  })

  test('admission stops at the first request that does not fit, and keeps one block in a hundred free', () => {
    const rig = rigOf({ blocks: 200, stepTokensMax: 4096, sequencesMax: 100 })
    const big = rig.add(prompt(4 * 150), 1)
    const middle = rig.add(prompt(4 * 49, 10_000), 1)
    const small = rig.add(prompt(4, 20_000), 1)
    const plan = rig.scheduler.planStep()
    // 49 of the 50 free blocks would be needed, and 2 must stay free; the small one does not overtake.
    expect(plan?.chunks.map(({ sequence }) => sequence)).toEqual([big])
    expect(rig.scheduler.waiting).toEqual([middle, small])
  })

  test('the last admitted request gives way when a decoding one finds no block, and is recomputed', () => {
    const rig = rigOf({ blocks: 4, stepTokensMax: 64 })
    const first = rig.add(prompt(8), 6)
    const second = rig.add(prompt(8, 100), 6)
    rig.step()
    expect(rig.scheduler.running).toEqual([first, second])
    rig.step()
    expect(rig.metrics.preemptions).toBe(1)
    expect(rig.scheduler.running).toEqual([first])
    expect(rig.scheduler.waiting).toEqual([second])
    rig.runToEnd()
    const alone = answerAlone(rig.model, second.request.promptTokens, { answerTokensMax: 6, blockSizeTokens })
    expect(answerOf(second)).toEqual(alone)
    expect(second.cachedTokens).toBe(0)
  })

  test('an aborted request gives its blocks back before the next step', () => {
    const rig = rigOf()
    const sequence = rig.add(prompt(9), 50)
    const waiting = rig.add(prompt(9), 50)
    rig.scheduler.planStep()
    sequence.isAborted = true
    waiting.isAborted = true
    expect(rig.step()).toBeUndefined()
    expect(rig.pool.usedBlocks).toBe(0)
    expect(rig.metrics.ended).toEqual({ stop: 0, length: 0, abort: 2 })
  })
})

describe('KV events', () => {
  test('snapshot and later batches rebuild the cache at every moment, parents before children', () => {
    fc.assert(
      fc.property(workloadArb, fc.nat(10), ({ requests, ...limits }, joinsAt) => {
        const rig = rigOf(limits)
        const early = new CacheMirror()
        rig.events.subscribe(({ payload }) => early.apply(payload))
        const late = new CacheMirror()
        const cached = () => {
          const all = new Map<bigint, number[]>()
          rig.pool.forEachCached((_, hash, _parent, tokens) => all.set(hash, [...tokens]))
          return all
        }
        let steps = 0
        const check = () => {
          if (steps++ === joinsAt) {
            const { sequence, payloads } = rig.events.snapshot(0)
            for (const payload of payloads) late.apply(payload)
            rig.events.subscribe((batch) => {
              if (batch.sequence > sequence) late.apply(batch.payload)
            })
          }
          expect(early.blocks).toEqual(cached())
          if (steps > joinsAt) expect(late.blocks).toEqual(cached())
        }
        for (const { text, length, answer } of requests) {
          rig.add(prompt(length, text * 3), answer)
          // Evictions of a step's beginning are published when it begins.
          const plan = rig.scheduler.planStep()
          rig.events.publish()
          check()
          if (plan) rig.scheduler.completeStep(plan)
          rig.events.publish()
          check()
        }
        while (rig.step()) check()
      }),
      { numRuns: 200 },
    )
  })
})
