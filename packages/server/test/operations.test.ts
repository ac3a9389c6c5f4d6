import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { qwen3Folder } from './support/qwen3.js'
import { TestFleet } from './support/test-fleet.js'

let fleet: TestFleet

beforeAll(async () => {
  fleet = await TestFleet.start({ workers: 2, engine: { timeScale: 0 } })
})
afterAll(() => fleet[Symbol.asyncDispose]())

const chat = (text: string) => ({
  model: 'infera-sim',
  messages: [{ role: 'user', content: text }],
  max_tokens: 4,
})

describe('operations', () => {
  test('health counts active workers', async () => {
    expect(await fleet.get('/health')).toMatchObject({
      status: 200,
      body: { status: 'ok', active_workers: 2 },
    })
  })

  test('readiness knows models', async () => {
    expect((await fleet.get('/readyz')).status).toBe(200)
    expect((await fleet.get('/readyz?model=infera-sim')).status).toBe(200)
    expect((await fleet.get('/readyz?model=other')).status).toBe(503)
  })

  test('a worker that was turned away is named with what differs', async () => {
    expect((await fleet.get('/v1/workers')).body.refused).toEqual([])
    const refused = fleet.startWorker('127.0.0.1:9', { name: 'infera-sim', folder: qwen3Folder })
    await expect(refused).rejects.toThrow(/'tokenizer_digest' differs/)
    const { body } = await fleet.get('/v1/workers')
    expect(body.workers).toHaveLength(2)
    expect(body.refused).toEqual([
      {
        worker_id: '127.0.0.1:9',
        reason: expect.stringContaining("'tokenizer_digest' differs"),
        setting: 'tokenizer_digest',
        count: 1,
        seconds_ago: expect.any(Number),
      },
    ])
    const metrics = await fleet.get('/metrics')
    expect(metrics.body).toContain('infera_refused_workers{setting="tokenizer_digest"} 1')
  })

  test('workers are shown as they registered, with what the router knows of them', async () => {
    const { body } = await fleet.get('/v1/workers')
    expect(body.workers.map((worker: { worker_id: string }) => worker.worker_id)).toEqual([
      '127.0.0.1:1',
      '127.0.0.1:2',
    ])
    for (const worker of body.workers) {
      expect(worker).toMatchObject({
        status: 'active',
        disagg_mode: 'mixed',
        engine: 'vllm',
        model_name: 'infera-sim',
        kv_block_size: 16,
        dp_rank: null,
        prompt: { state: 'ok', template_failures: 0 },
      })
    }
  })

  test('workers are told where the server listens', async () => {
    for (const worker of fleet.workers) expect((await worker.joined)[0]?.server.url).toBe(fleet.url)
  })

  test('the cache view of a worker is as large as its cache', async () => {
    await fleet.post(
      '/v1/chat/completions',
      chat('The quick brown fox jumps over the lazy dog, again and again.'),
    )
    await fleet.viewsSettled()
    let blocks = 0
    for (const worker of fleet.workers) {
      const path = `/v1/admin/cache-view/${encodeURIComponent(worker.record.worker_id)}`
      const { status, body } = await fleet.get(path)
      expect(status).toBe(200)
      expect(body).toEqual({
        worker_id: worker.record.worker_id,
        dp_rank: null,
        block_count: worker.engine.cachedBlocks,
      })
      blocks += body.block_count
    }
    expect(blocks).toBeGreaterThan(0)
    expect((await fleet.get('/v1/admin/cache-view/nobody')).body.block_count).toBe(0)
    expect((await fleet.get('/v1/admin/cache-view/nobody?dp_rank=x')).status).toBe(422)
  })

  test('metrics are Prometheus text that counts what happened', async () => {
    await fleet.post('/v1/chat/completions', chat('count me'))
    const { headers, body } = await fleet.get('/metrics')
    expect(headers.get('content-type')).toMatch(/^text\/plain; version=/)
    expect(body).toMatch(/^infera_active_workers\{disagg_mode="mixed"\} 2$/m)
    expect(body).toMatch(/^infera_router_picks_total\{role="mixed",worker_id="127\.0\.0\.1:\d"\} [1-9]/m)
    expect(body).toMatch(/^infera_request_duration_seconds_count\{router="mixed",outcome="ok"\} [1-9]/m)
    expect(body).toMatch(/^infera_request_inflight\{router="mixed"\} 0$/m)
    expect(body).toMatch(/^infera_policy_cache_view_size\{worker_id="127\.0\.0\.1:1"\} \d/m)
  })

  test('the request id comes back, on errors too, and reaches nobody unasked', async () => {
    const response = await fetch(`${fleet.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'x-infera-request-id': 'my-id-1' },
      body: '{',
    })
    expect(response.status).toBe(400)
    expect(response.headers.get('x-infera-request-id')).toBe('my-id-1')
  })

  test('what does not exist is 404, a wrong method 405 with what is allowed', async () => {
    expect((await fleet.get('/nowhere')).status).toBe(404)
    const wrong = await fetch(`${fleet.url}/health`, { method: 'POST' })
    expect(wrong.status).toBe(405)
    expect(wrong.headers.get('allow')).toBe('GET, HEAD')
    expect((await fleet.get('/v1/chat/completions')).status).toBe(405)
  })
})
