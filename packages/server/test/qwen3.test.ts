import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { qwen3Folder } from './support/qwen3.js'
import { TestFleet } from './support/test-fleet.js'

const model = { name: 'qwen3', folder: qwen3Folder }
let fleet: TestFleet

beforeAll(async () => {
  fleet = await TestFleet.start({ workers: 2, model, engine: { timeScale: 0 } })
})
afterAll(() => fleet[Symbol.asyncDispose]())

const conversation = {
  model: 'qwen3',
  max_tokens: 8,
  messages: [
    { role: 'system', content: 'You are helpful. 你是一个有用的助手。' },
    {
      role: 'user',
      content: '今天上海的天气怎么样？ 👩‍👩‍👧‍👦🌧️ Please look it up with the tool that you were given.',
    },
    {
      role: 'assistant',
      content: '',
      tool_calls: [
        {
          id: 'c1',
          type: 'function',
          function: { name: 'weather', arguments: '{"city": "上海", "unit": "C"}' },
        },
      ],
    },
    { role: 'tool', tool_call_id: 'c1', content: '{"temperature": 21, "sky": "多云"}' },
  ],
  tools: [
    {
      type: 'function',
      function: {
        name: 'weather',
        description: 'Weather of a city <now>',
        parameters: { type: 'object', properties: { city: { type: 'string' }, unit: { enum: ['C', 'F'] } } },
      },
    },
  ],
}

describe('the real Qwen3 tokenizer and template', () => {
  test("the router's hashes of a chat are those derived from the worker's events", async () => {
    const first = await fleet.post('/v1/chat/completions', conversation)
    expect(first.status).toBe(200)
    expect(first.body.usage.prompt_tokens_details.cached_tokens).toBe(0)
    await fleet.viewsSettled()

    const fullBlocks = Math.floor(first.body.usage.prompt_tokens / 16)
    expect(fullBlocks).toBeGreaterThan(8)
    const placement = await fleet.server.router.route({ path: '/v1/chat/completions', body: conversation })
    expect(placement.requestBlocks).toBe(fullBlocks)
    expect(placement.overlapBlocks).toBe(fullBlocks)

    const second = await fleet.post('/v1/chat/completions', conversation)
    expect(second.body.usage.prompt_tokens_details.cached_tokens).toBe(fullBlocks * 16)
    expect(second.body.choices).toEqual(first.body.choices)
  })

  test('a growing conversation stays with its worker and is served from its cache', async () => {
    const messages: unknown[] = [
      { role: 'user', content: `An own conversation: ${'so many words '.repeat(20)}` },
    ]
    let known = 0
    for (let turn = 0; turn < 4; turn++) {
      const { body } = await fleet.post('/v1/chat/completions', { model: 'qwen3', messages, max_tokens: 20 })
      expect(body.usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(known)
      known = Math.floor((body.usage.prompt_tokens - 16) / 16) * 16
      messages.push(body.choices[0].message, { role: 'user', content: `And then, ${turn}?` })
      await fleet.viewsSettled()
    }
  })
})

describe('a chat template that fails', () => {
  test('is counted, shown in /v1/workers, and never fails the request', async () => {
    // Qwen3's template looks into the content of the last user turn; an object is nothing it can look into.
    const broken = {
      ...conversation,
      messages: [{ role: 'user', content: null }],
      chat_template_kwargs: { messages: 3 },
    }
    const { status } = await fleet.post('/v1/chat/completions', broken)
    expect(status).toBeLessThan(500)
    const { body } = await fleet.get('/v1/workers')
    for (const worker of body.workers) {
      expect(worker.prompt.template_failures).toBeGreaterThan(0)
      expect(worker.prompt.state).toBe('failing')
    }
    const metrics = await fleet.get('/metrics')
    expect(metrics.body).toMatch(/^infera_router_template_failures_total [1-9]/m)
    expect(metrics.body).toMatch(/^infera_router_no_locality_total\{reason="template-error"\} [1-9]/m)
  })
})
