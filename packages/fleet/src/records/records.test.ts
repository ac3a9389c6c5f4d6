import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { InvalidRecordError } from '../errors.js'
import { parseServerRecord } from './server-record.js'
import { expandTargets } from './targets.js'
import { parseWorkerRecord } from './worker-record.js'

const least = { worker_id: 'h:1', url: 'http://h:1', model_name: 'm' }

describe('worker records', () => {
  test('what a reference worker leaves out has the reference’s defaults, and unknown keys are kept', () => {
    expect(parseWorkerRecord({ ...least, later: { a: 1 } })).toEqual({
      ...least,
      later: { a: 1 },
      engine: 'sglang',
      status: 'active',
      disagg_mode: 'mixed',
      disagg_meta: {},
      kv_events_endpoint: null,
      kv_block_size: null,
      dp_rank: null,
      dp_size: null,
      request_transport: 'http',
    })
  })

  test.each([
    [{ ...least, worker_id: '' }, 'worker_id'],
    [{ ...least, model_name: undefined }, 'model_name'],
    [{ ...least, status: 'sleeping' }, 'status'],
    [{ ...least, kv: { engine_block_size: null } }, 'kv.engine_block_size'],
    [{ ...least, dp_size: 1_000_000 }, 'dp_size'],
    [null, 'record'],
    ['text', 'record'],
  ])('%j is refused, naming %s', (value, field) => {
    expect(() => parseWorkerRecord(value)).toThrow(InvalidRecordError)
    expect(() => parseWorkerRecord(value)).toThrow(`invalid worker record: ${field}:`)
  })

  test('whatever arrives is a record or an InvalidRecordError', () => {
    fc.assert(
      fc.property(fc.anything(), (value) => {
        try {
          parseWorkerRecord(value)
        } catch (error) {
          expect(error).toBeInstanceOf(InvalidRecordError)
        }
      }),
    )
  })
})

test('a server record without its url is refused, naming it', () => {
  expect(() => parseServerRecord({ server_id: 's', version: '1' })).toThrow('invalid server record: url:')
})

test.each([
  [{}, ['h:1']],
  [{ dp_size: 1 }, ['h:1']],
  [{ dp_size: 3 }, ['h:1#dp0', 'h:1#dp1', 'h:1#dp2']],
  [{ dp_size: 3, dp_rank: 1 }, ['h:1']],
])('a worker with %j is the targets %j', (more, keys) => {
  expect(expandTargets(parseWorkerRecord({ ...least, ...more })).map(({ routeKey }) => routeKey)).toEqual(
    keys,
  )
})
