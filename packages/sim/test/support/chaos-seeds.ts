import { expect, test } from 'vitest'
import { type ChaosReport, runChaos } from '../../src/index.js'
import { wordPrompt } from '../../src/testing/word-prompt.js'

const requests = 2_000
const faults = 30
/** Set, it is the one seed that runs, and it runs in `chaos.test.ts`. */
const asked = process.env.INFERA_CHAOS_SEED
const policies = ['kv-aware', 'kv-aware', 'least-loaded', 'round-robin'] as const

/**
 * One test for each seed: a fleet under clients and faults, after which every invariant holds. The seeds are spread over a few files
 * so that they run side by side.
 */
export function chaosSeeds(from: number, to: number, { isFirst = false } = {}): void {
  if (asked !== undefined && !isFirst) {
    test.skip('only the seed that was asked for runs, in chaos.test.ts', () => {})
    return
  }
  const seeds =
    asked === undefined ? Array.from({ length: to - from + 1 }, (_, index) => from + index) : [Number(asked)]
  test.each(seeds)(
    'whatever seed %i does to a fleet, every invariant holds',
    { timeout: 180_000 },
    async (seed) => {
      const report = await runSeed(seed)
      expect(report.violations, explained(report)).toEqual([])
      expect(report.requests.length).toBeGreaterThanOrEqual(requests)
      // The faults were there, and they hurt.
      const { records } = report.faults
      expect(records.filter(({ liftedAtMs }) => liftedAtMs !== null)).toHaveLength(faults)
      expect(Object.keys(report.faults.counts()).length).toBeGreaterThanOrEqual(20)
      const { retries, broken, left, snapshots } = report.counts
      expect(retries).toBeGreaterThan(10)
      expect(broken).toBeGreaterThan(0)
      expect(left).toBeGreaterThan(50)
      expect(snapshots).toBeGreaterThan(6)
    },
  )
}

/** Every fourth seed does without a link, so that faults of the ports meet nothing that would mend them. */
export function runSeed(seed: number): Promise<ChaosReport> {
  return runChaos({
    seed,
    prompt: wordPrompt(),
    workload: { requests, chatRatio: 0.4, fetchRatio: 0.4 },
    faults: { count: faults },
    fleet: {
      mode: seed % 4 === 0 ? 'ports' : 'link',
      ...(seed % 3 === 0 ? { bytesPerMs: 5_000 } : {}),
      router: {
        firstByteTimeoutMs: 1_500,
        idleTimeoutMs: 1_500,
        policy: policies[seed % policies.length] ?? 'kv-aware',
      },
    },
  })
}

function explained(report: ChaosReport): string {
  return [
    `seed ${report.seed} breaks ${report.violations.length} invariants:`,
    ...report.violations.slice(0, 20),
    String(report.faults),
    'the end of what happened:',
    ...report.trace.slice(-40),
    `again: INFERA_CHAOS_SEED=${report.seed} npx vitest run --project integration packages/sim/test/chaos.test.ts`,
  ].join('\n')
}
