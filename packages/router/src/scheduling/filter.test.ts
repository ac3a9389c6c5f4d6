import { parseWorkerRecord } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { describeSkipped, eligibleWorkers } from './filter.js'

const worker = (id: string, overrides: object = {}) => ({
  record: parseWorkerRecord({ worker_id: id, url: `http://${id}`, model_name: 'm', ...overrides }),
})
const anyone = { role: 'mixed', tried: new Set<string>(), transportKinds: new Set(['http']) } as const

describe('eligible workers', () => {
  test('are all that fit, in registration order', () => {
    const workers = [worker('z'), worker('a', { kv_block_size: null }), worker('m')]
    expect(eligibleWorkers(workers, anyone)).toEqual({ eligible: workers, skipped: [] })
  })

  test.each([
    [{ status: 'draining' }, 'not-active'],
    [{ status: 'dead' }, 'not-active'],
    [{ disagg_mode: 'decode' }, 'other-role'],
    [{ request_transport: 'nats' }, 'no-transport'],
  ])('are none with %j', (overrides, reason) => {
    expect(eligibleWorkers([worker('a', overrides)], anyone)).toEqual({
      eligible: [],
      skipped: [{ workerId: 'a', reason }],
    })
  })

  test('were not tried, and a tried one that drains is said to drain', () => {
    const workers = [worker('a'), worker('b', { status: 'draining' }), worker('c')]
    expect(eligibleWorkers(workers, { ...anyone, tried: new Set(['a', 'b']) })).toEqual({
      eligible: [workers[2]],
      skipped: [
        { workerId: 'a', reason: 'tried' },
        { workerId: 'b', reason: 'not-active' },
      ],
    })
  })
})

test('the reasons are told in words, like ones together', () => {
  expect(describeSkipped([])).toBe('')
  expect(
    describeSkipped([
      { workerId: 'a', reason: 'not-active' },
      { workerId: 'b', reason: 'tried' },
      { workerId: 'c', reason: 'not-active' },
    ]),
  ).toBe('2 draining or dead, 1 tried already')
})
