import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseWorkerRecord } from './records/worker-record.js'
import { describeDifference, settingDifferences, settingsOfModel, statedSettings } from './settings.js'

const record = (more: Record<string, unknown> = {}) =>
  parseWorkerRecord({ worker_id: 'h:1', url: 'http://h:1', model_name: 'm', ...more })

describe('what differs', () => {
  test('is only what both sides state, in name order', () => {
    expect(settingDifferences({ a: 1, b: 2 }, { b: 2, c: 3 })).toEqual([])
    const names = settingDifferences({ z: 1, b: null, a: 'x' }, { z: 2, b: false, a: 'x' })
    expect(names.map(({ name }) => name)).toEqual(['b', 'z'])
    expect(settingDifferences({ size: 16 }, { size: '16' })).toEqual([
      { name: 'size', server: 16, worker: '16', effect: 'refused' },
    ])
  })

  test('a server with NATS reaches HTTP workers too, and one without reaches no NATS worker', () => {
    expect(settingDifferences({ request_transport: 'nats' }, { request_transport: 'http' })).toEqual([])
    expect(settingDifferences({ request_transport: 'http' }, { request_transport: 'link' })).toEqual([])
    expect(settingDifferences({ request_transport: 'http' }, { request_transport: 'nats' })).toMatchObject([
      { effect: 'unroutable' },
    ])
  })

  test('of the throttle it only counts whether there is one', () => {
    const between = (server: number, worker: number) =>
      settingDifferences({ nats_req_max_pending: server }, { nats_req_max_pending: worker })
    expect(between(8, 64)).toEqual([])
    expect(between(0, 0)).toEqual([])
    expect(between(8, 0)).toMatchObject([{ effect: 'degraded' }])
    expect(between(0, 8)).toMatchObject([{ effect: 'degraded' }])
  })

  test.each([
    [
      { kv_event_transport: 'nats' },
      { kv_event_transport: 'zmq' },
      'setting \'kv_event_transport\' differs: the server has "nats" (--kv-event-transport), the worker "zmq" (--kv-event-transport); the server does not see the cache of this worker; give both the same value',
    ],
    [
      { kv_block_size: 16 },
      { kv_block_size: 64 },
      "setting 'kv_block_size' differs: the server has 16 (--kv-block-size), the worker 64 (--block-size); give the engine the block size of the fleet, or take the flag away from the server",
    ],
    [
      { later: true },
      { later: false },
      "setting 'later' differs: the server has true, the worker false; give both the same value",
    ],
  ])('%j against %j is one line with flags, values and what to do', (server, worker, line) => {
    expect(settingDifferences(server, worker).map(describeDifference)).toEqual([line])
  })

  test('names that every object has are names like others', () => {
    expect(settingDifferences({ constructor: 1 }, { constructor: 2 })).toMatchObject([
      { name: 'constructor' },
    ])
    expect(settingDifferences({ constructor: 1 }, {})).toEqual([])
  })

  test('is found whoever speaks of what, and never where both agree', () => {
    const settings = fc.dictionary(fc.string(), fc.oneof(fc.integer(), fc.boolean(), fc.constant(null)))
    fc.assert(
      fc.property(settings, settings, (server, worker) => {
        expect(settingDifferences(server, server)).toEqual([])
        const expected = Object.keys(server).filter(
          (name) => Object.hasOwn(worker, name) && server[name] !== worker[name],
        )
        expect(settingDifferences(server, worker).map(({ name }) => name)).toEqual(expected.sort())
      }),
    )
  })
})

describe('what a record states', () => {
  test('is what a record of Infera 0.1 says by its own keys', () => {
    const kv = {
      ...{ engine_block_size: 16, index_block_size: 64, tokenizer: 't', tokenizer_digest: 'd' },
      tokenizer_canary: [1],
    }
    expect(statedSettings(record({ request_transport: 'nats', kv, kv_block_size: 16 }))).toEqual({
      request_transport: 'nats',
      kv_block_size: 16,
      tokenizer_digest: 'd',
    })
    expect(statedSettings(record())).toEqual({ request_transport: 'http' })
    const decode = record({ disagg_mode: 'decode', disagg_meta: { protocol: 'mooncake' } })
    expect(statedSettings(decode)).toMatchObject({ pd_protocol: 'mooncake' })
  })

  test('is what a worker of ours adds, as far as it can be compared', () => {
    const settings = { kv_event_transport: 'zmq', nats_req_max_pending: 0, odd: { a: 1 } }
    expect(statedSettings(record({ ext: { settings } }))).toEqual({
      request_transport: 'http',
      kv_event_transport: 'zmq',
      nats_req_max_pending: 0,
    })
    expect(statedSettings(record({ ext: { settings: 'none' } }))).toEqual({ request_transport: 'http' })
  })
})

test('a server states some settings for one model alone', () => {
  const settings = { block_hash: 'x', 'tokenizer_digest/a': '1', 'tokenizer_digest/b/c': '2' }
  expect(settingsOfModel(settings, 'a')).toEqual({ block_hash: 'x', tokenizer_digest: '1' })
  expect(settingsOfModel(settings, 'b/c')).toEqual({ block_hash: 'x', tokenizer_digest: '2' })
  expect(settingsOfModel(settings, 'other')).toEqual({ block_hash: 'x' })
})
