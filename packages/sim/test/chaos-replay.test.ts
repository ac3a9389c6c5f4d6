import { loadPromptModel } from '@infera/router/prompt'
import { expect, test } from 'vitest'
import { type ChaosOptions, runChaos, simModelFolder } from '../src/index.js'

test.each(['link', 'ports'] as const)(
  'the same seed gives the same run, down to its digest: %s',
  async (mode) => {
    const prompt = await loadPromptModel(simModelFolder)
    const options = {
      prompt,
      workload: { requests: 200, spanMs: 4_000 },
      faults: { count: 10, untilMs: 4_000 },
      fleet: { mode, router: { firstByteTimeoutMs: 1_500, idleTimeoutMs: 1_500 } },
    } satisfies Omit<ChaosOptions, 'seed'>
    const first = await runChaos({ ...options, seed: 3 })
    const again = await runChaos({ ...options, seed: 3 })
    const other = await runChaos({ ...options, seed: 4 })
    expect(first.violations).toEqual([])
    expect(again.digest).toBe(first.digest)
    expect(JSON.stringify(again.faults)).toBe(JSON.stringify(first.faults))
    expect(again.requests).toEqual(first.requests)
    expect(other.digest).not.toBe(first.digest)
  },
)
