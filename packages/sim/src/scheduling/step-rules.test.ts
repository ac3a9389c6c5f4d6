import { describe, expect, test } from 'vitest'
import { SimEngineOptions } from '../options.js'
import { SchedulerRig } from '../testing/scheduler-rig.js'
import { fits, stepDurationMs } from './step-rules.js'

const costs = SimEngineOptions.parse({})
const rig = new SchedulerRig({ blocks: 100, blockSizeTokens: 16, sequencesMax: 4, stepTokensMax: 1024 })
const decoding = (context: number) => {
  const sequence = rig.add([1], 1)
  sequence.computed = context
  return sequence
}
const chunk = (context: number, tokens: number) => ({ sequence: rig.add([1], 1), context, tokens })

describe('the length of a step', () => {
  test('is the fixed part and the computing of its prompt chunks, which grows with their context', () => {
    // 3 + 1000 * (1 + 500/50000) / 8 = 129.25; and behind 50 000 tokens each costs twice as much.
    expect(stepDurationMs({ decoding: [], chunks: [chunk(0, 1000)] }, costs)).toBeCloseTo(129.25, 9)
    expect(stepDurationMs({ decoding: [], chunks: [chunk(50_000, 1000)] }, costs)).toBeCloseTo(254.25, 9)
  })

  test('is bound by memory when little is computed', () => {
    // 3 + 20 + 0.000027 * 30 000
    const plan = { decoding: [decoding(10_000), decoding(20_000)], chunks: [] }
    expect(stepDurationMs(plan, costs)).toBeCloseTo(23.81, 9)
  })

  test('counts each decoding request as one token of computing', () => {
    const plan = { decoding: [decoding(0), decoding(0)], chunks: [chunk(0, 400)] }
    expect(stepDurationMs(plan, costs)).toBeCloseTo(3 + (400 * (1 + 200 / 50_000) + 2) / 8, 9)
  })

  test('has computing and memory divided by the speed factor, not the fixed part', () => {
    const plan = { decoding: [], chunks: [chunk(0, 1000)] }
    expect(stepDurationMs(plan, { ...costs, speedFactor: 2 })).toBeCloseTo(3 + 126.25 / 2, 9)
  })
})

describe('admission', () => {
  test('needs a reserve of one block in a hundred unless nothing runs', () => {
    const request = { blocksNeeded: 40, capacityBlocks: 250 }
    expect(fits({ ...request, available: 41, running: 1 })).toBe(false)
    expect(fits({ ...request, available: 42, running: 1 })).toBe(true)
    expect(fits({ ...request, available: 40, running: 0 })).toBe(true)
    expect(fits({ ...request, available: 39, running: 0 })).toBe(false)
  })
})
