import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { TestFleet } from './support/test-fleet.js'

let fleet: TestFleet
let client: OpenAI

beforeAll(async () => {
  fleet = await TestFleet.start({ workers: 2, engine: { timeScale: 0 } })
  client = new OpenAI({ baseURL: `${fleet.url}/v1`, apiKey: 'any', maxRetries: 0 })
})
afterAll(() => fleet[Symbol.asyncDispose]())

const messages = [{ role: 'user' as const, content: 'Tell me about rivers, please.' }]

describe('the openai package', () => {
  test('lists the models of the fleet', async () => {
    const models = await client.models.list()
    expect(models.data.map((model) => model.id)).toEqual(['infera-sim'])
  })

  test('gets a whole answer', async () => {
    const answer = await client.chat.completions.create({ model: 'infera-sim', messages, max_tokens: 12 })
    expect(answer.choices[0]?.message.content).toMatch(/^[A-Z]\w+/)
    expect(answer.choices[0]?.finish_reason).toBe('length')
    expect(answer.usage?.completion_tokens).toBe(12)
  })

  test('streams the same answer in pieces, with usage when it asks for it', async () => {
    const whole = await client.chat.completions.create({ model: 'infera-sim', messages, max_tokens: 12 })
    const stream = await client.chat.completions.create({
      model: 'infera-sim',
      messages,
      max_tokens: 12,
      stream: true,
      stream_options: { include_usage: true },
    })
    let text = ''
    let pieces = 0
    const usages: number[] = []
    for await (const chunk of stream) {
      const delta = chunk.choices[0]?.delta.content ?? ''
      text += delta
      if (delta) pieces++
      if (chunk.usage) usages.push(chunk.usage.completion_tokens)
    }
    expect(text).toBe(whole.choices[0]?.message.content)
    expect(pieces).toBeGreaterThan(1)
    expect(usages).toEqual([12])
  })

  test('completes a text', async () => {
    const answer = await client.completions.create({
      model: 'infera-sim',
      prompt: 'The river',
      max_tokens: 5,
    })
    expect(answer.choices[0]?.text).toMatch(/\w/)
  })

  test('gets errors that it can switch on', async () => {
    const unknown = client.chat.completions.create({ model: 'no-such-model', messages })
    await expect(unknown).rejects.toMatchObject({ status: 404, code: 'model_not_found', param: 'model' })
    const wrong = client.chat.completions.create({ model: 'infera-sim', messages: 'hello' as never })
    await expect(wrong).rejects.toMatchObject({ status: 400, param: 'messages' })
  })

  test('is noticed when it leaves: the engine stops and holds nothing', async () => {
    const stream = await client.chat.completions.create({
      model: 'infera-sim',
      messages,
      max_tokens: 4096,
      stream: true,
    })
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break
    await fleet.enginesIdle()
  })
})
