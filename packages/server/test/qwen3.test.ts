import { cpSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { silentLogger } from '@infera/fleet'
import { simModelFolder } from '@infera/sim'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { qwen3Folder } from './support/qwen3.js'
import { TestFleet } from './support/test-fleet.js'

const model = { name: 'qwen3', folder: qwen3Folder }
let fleet: TestFleet

beforeAll(async () => {
  // At weight 1 one prompt that is held weighs as much as the load that it brought, and the idle worker wins the tie.
  fleet = await TestFleet.start({ workers: 2, model, server: { overlapWeight: 2 }, engine: { timeScale: 0 } })
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
  test('is counted, warned of once, shown in /v1/workers, and never fails the request', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'infera-template-'))
    cpSync(simModelFolder, folder, { recursive: true })
    // The worker's own template is fine; only the server's copy is broken.
    writeFileSync(join(folder, 'chat_template.jinja'), "{{ raise_exception('roles must alternate') }}")
    const warnings: string[] = []
    const logger = { ...silentLogger, warn: (_fields: unknown, message: string) => warnings.push(message) }
    await using broken = await TestFleet.start({
      workers: 2,
      model: { name: 'infera-sim', folder },
      workerModel: { name: 'infera-sim', folder: simModelFolder },
      engine: { timeScale: 0 },
      logger,
    })
    const chat = { model: 'infera-sim', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 }
    for (let request = 0; request < 3; request++) {
      expect((await broken.post('/v1/chat/completions', chat)).status).toBe(200)
    }
    const { body } = await broken.get('/v1/workers')
    for (const worker of body.workers) {
      expect(worker.prompt).toMatchObject({ state: 'failing', template_failures: 3 })
    }
    const metrics = await broken.get('/metrics')
    expect(metrics.body).toMatch(/^infera_router_template_failures_total 3$/m)
    expect(metrics.body).toMatch(/^infera_router_no_locality_total\{reason="template-error"\} 3$/m)
    expect(warnings.filter((message) => message.includes('template'))).toHaveLength(1)
  })
})
