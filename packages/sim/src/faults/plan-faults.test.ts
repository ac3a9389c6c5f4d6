import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { FaultPort } from './fault.js'
import { faultKindNames, faultKinds } from './fault-kinds.js'
import { planFaults } from './plan-faults.js'

const ports: ReadonlySet<FaultPort> = new Set(['engine', 'answer', 'line', 'requests', 'events', 'discovery'])
const facts = { places: 4, ports }

describe('a plan of faults', () => {
  test('is the same for the same seed, and another one for another', () => {
    expect(planFaults({ seed: 5 }, facts)).toEqual(planFaults({ seed: 5 }, facts))
    expect(planFaults({ seed: 6 }, facts)).not.toEqual(planFaults({ seed: 5 }, facts))
  })

  test('never has two faults at one place at once, nor more at a time than it may, whatever is asked for', () => {
    const options = fc.record({
      seed: fc.integer(),
      count: fc.nat(60),
      concurrentMax: fc.integer({ min: 1, max: 5 }),
      recoveryMs: fc.nat(1_000),
      durationMsMax: fc.integer({ min: 200, max: 5_000 }),
    })
    fc.assert(
      fc.property(options, fc.integer({ min: 1, max: 5 }), (own, places) => {
        const plan = planFaults(own, { places, ports })
        expect(plan).toHaveLength(own.count)
        for (const [index, fault] of plan.entries()) {
          const earlier = plan.slice(0, index)
          expect(fault.atMs).toBeGreaterThanOrEqual(earlier.at(-1)?.atMs ?? 0)
          for (const other of earlier.filter(({ place }) => place === fault.place)) {
            expect(fault.atMs).toBeGreaterThanOrEqual(other.atMs + other.durationMs + own.recoveryMs)
          }
          const lasting = earlier.filter(({ atMs, durationMs }) => atMs + durationMs > fault.atMs)
          expect(lasting.length).toBeLessThan(own.concurrentMax)
        }
      }),
    )
  })

  test('has every kind once before any comes again, and a kind as often as its weight says', () => {
    const round = planFaults({ count: faultKinds.length }, facts).map(({ kind }) => kind)
    expect([...round].sort()).toEqual([...faultKindNames].sort())
    const weighted = planFaults({ count: 8, kinds: { lineCut: 3, engineDies: 1, engineHangs: 0 } }, facts)
    expect(weighted.filter(({ kind }) => kind === 'lineCut')).toHaveLength(6)
    expect(weighted.filter(({ kind }) => kind === 'engineDies')).toHaveLength(2)
  })

  test('leaves out what has no port to bite at', () => {
    const plan = planFaults({ count: 40 }, { places: 3, ports: new Set(['events']) })
    expect(plan.every(({ kind }) => kind.startsWith('events'))).toBe(true)
    expect(
      planFaults({ count: 40, kinds: { lineCut: 1 } }, { places: 3, ports: new Set(['events']) }),
    ).toEqual([])
  })

  test.each([
    [{ kinds: { engineDoes: 1 } }, /engineDoes/],
    [{ fromMs: 5, untilMs: 4 }, /untilMs/],
    [{ durationMsMin: 5, durationMsMax: 4 }, /durationMsMax/],
    [{ cuont: 5 }, /cuont/],
  ])('refuses %j by name', (options, message) => {
    expect(() => planFaults(options as object, facts)).toThrow(message)
  })
})

test('kinds have names of their own, and say what they mean', () => {
  expect(new Set(faultKindNames).size).toBe(faultKinds.length)
  for (const { name, meaning } of faultKinds) {
    expect(name).toMatch(/^[a-z]+([A-Z][a-z]+)+$/)
    expect(meaning.length).toBeGreaterThan(20)
  }
})
