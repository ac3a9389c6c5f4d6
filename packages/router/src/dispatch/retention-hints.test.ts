import type { TransportRequest } from '@infera/fleet'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseCacheHints } from '../scheduling/cache-hints.js'
import { effectiveRetention, withRetention } from './retention-hints.js'

const sglang = { engine: 'sglang' }
const vllm = { engine: 'vllm' }

function told(
  json: string,
  worker: { engine: string; ext?: { engine: string } },
  retention = 'long' as const,
) {
  const request: TransportRequest = {
    method: 'POST',
    path: '/v1/completions',
    headers: {},
    body: Buffer.from(json),
  }
  return Buffer.from(withRetention(request, worker, retention).body).toString('utf8')
}

describe('what is told', () => {
  test.each([
    ['none', 0],
    ['short', 50],
    ['long', 100],
  ] as const)('SGLang is told %s as a priority and by name', (retention, priority) => {
    const request = { method: 'POST', path: '/', headers: {}, body: Buffer.from('{"prompt":"p"}') } as const
    const { body } = withRetention(request, sglang, retention)
    expect(JSON.parse(Buffer.from(body).toString())).toEqual({
      priority,
      infera_retention: retention,
      prompt: 'p',
    })
    expect(request.body.toString()).toBe('{"prompt":"p"}')
  })

  test.each([
    ['{}', { infera_retention: 'long' }],
    ['{"kv_transfer_params": { }}', { infera_retention: 'long' }],
    ['{"kv_transfer_params": {"a": [1, "}"]} , "b": 1}', { infera_retention: 'long', a: [1, '}'] }],
    ['{"kv_transfer_params": null }', { infera_retention: 'long' }],
    ['{"kv_transfer_params":"text"}', { infera_retention: 'long' }],
    ['{"kv_transfer_params":{"infera_retention":"none"}}', { infera_retention: 'none' }],
  ])('vLLM is told within kv_transfer_params: %s', (json, params) => {
    const { kv_transfer_params, _infera_retention } = JSON.parse(told(json, vllm))
    expect(kv_transfer_params).toEqual(params)
    expect(_infera_retention).toBe('long')
  })

  test('what the client says of it stays', () => {
    expect(told('{"priority":7,"infera_retention":"none"}', sglang)).toBe(
      '{"priority":7,"infera_retention":"none"}',
    )
    expect(JSON.parse(told('{"priority":7}', sglang))).toEqual({ priority: 7, infera_retention: 'long' })
  })

  test('engines that do not know of it are told nothing; the true name of an engine counts', () => {
    expect(told('{"a":1}', { engine: 'atom' })).toBe('{"a":1}')
    expect(told('{"a":1}', { engine: 'sglang', ext: { engine: 'llamacpp' } })).toBe('{"a":1}')
  })

  test('all else keeps every byte', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.constantFrom(0, 1, 3), (body, indent) => {
        const json = JSON.stringify(body, null, indent)
        const inner = json.trim().slice(1, -1)
        const { priority, infera_retention, ...rest } = JSON.parse(told(json, sglang))
        expect(rest).toEqual(JSON.parse(json))
        expect([priority, infera_retention]).toEqual([100, 'long'])
        expect(told(json, sglang)).toContain(inner)
      }),
    )
    expect(told('{"seed": 12345678901234567890, "t": 1.0}', vllm)).toContain(
      '"seed": 12345678901234567890, "t": 1.0',
    )
  })
})

test('a client that asks for something is heard, `none` included; else the default counts, unless hints are off', () => {
  const none = parseCacheHints({ prompt_cache_retention: 'none' })
  const long = parseCacheHints({ prompt_cache_retention: '24h' })
  const silent = parseCacheHints({})
  expect(effectiveRetention(none, 'long')).toBe('none')
  expect(effectiveRetention(long, 'none')).toBe('long')
  expect(effectiveRetention(silent, 'short')).toBe('short')
  expect(effectiveRetention(long, 'off')).toBeUndefined()
})
