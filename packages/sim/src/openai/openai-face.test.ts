import type { TransportRequest } from '@infera/fleet'
import { VirtualClock } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { SimEngine, type SimEnginePorts } from '../engine/sim-engine.js'
import type { SimEngineOptions } from '../options.js'
import { wordPrompt } from '../testing/word-prompt.js'

const prompt = wordPrompt()
const chat = '/v1/chat/completions'
const completions = '/v1/completions'

const engineOf = (options: SimEngineOptions & Partial<SimEnginePorts> = {}) =>
  new SimEngine({ prompt, timeScale: 0, instanceId: 'test', wallClock: () => 1_700_000_000_500, ...options })

interface Called {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

async function call(
  engine: SimEngine,
  path: string,
  body: unknown,
  options: { signal?: AbortSignal; request?: Partial<TransportRequest> } = {},
): Promise<Called> {
  const { signal = new AbortController().signal, request = {} } = options
  const bytes = typeof body === 'string' ? body : JSON.stringify(body)
  const response = await engine.handler(
    { method: 'POST', path, headers: {}, body: new TextEncoder().encode(bytes), ...request },
    { signal },
  )
  const chunks: Uint8Array[] = []
  for await (const chunk of response.body) chunks.push(chunk)
  return { status: response.status, headers: response.headers, text: Buffer.concat(chunks).toString() }
}

const get = (engine: SimEngine, path: string) => call(engine, path, '', { request: { method: 'GET' } })

/** The JSON of each event of a stream; `[DONE]` stays a string. */
function eventsOf({ text }: Called): unknown[] {
  expect(text.endsWith('data: [DONE]\n\n')).toBe(true)
  return text
    .trimEnd()
    .split('\n\n')
    .map((event) => event.replace(/^data: /, ''))
    .map((data) => (data === '[DONE]' ? data : JSON.parse(data)))
}

const messages = [{ role: 'user', content: 'The river and the mountain are near the old village by the sea' }]

interface UnaryChat {
  choices: { message: { content: string }; finish_reason: string }[]
  usage: {
    prompt_tokens: number
    completion_tokens: number
    prompt_tokens_details: { cached_tokens: number }
  }
}
const chatOf = ({ text }: Called) => JSON.parse(text) as UnaryChat

describe('a chat', () => {
  test('is answered with one object, its usage and the cached tokens', async () => {
    const engine = engineOf({ blockSizeTokens: 4 })
    const first = await call(engine, chat, { model: 'infera-sim', messages, max_tokens: 5 })
    expect(first.status).toBe(200)
    expect(first.headers['content-type']).toBe('application/json')
    const { choices, usage, ...rest } = JSON.parse(first.text)
    expect(rest).toEqual({
      id: 'chatcmpl-test-0',
      object: 'chat.completion',
      created: 1_700_000_000,
      model: 'infera-sim',
    })
    const content = choices[0].message.content
    expect(choices).toEqual([
      { index: 0, message: { role: 'assistant', content }, logprobs: null, finish_reason: 'length' },
    ])
    const length = prompt.tokenize(chat, { messages }).length
    expect(usage).toEqual({
      prompt_tokens: length,
      completion_tokens: 5,
      total_tokens: length + 5,
      prompt_tokens_details: { cached_tokens: 0 },
    })
    const second = chatOf(await call(engine, chat, { messages, max_tokens: 5 }))
    expect(second.choices[0]?.message.content).toBe(content)
    expect(second.usage.prompt_tokens_details.cached_tokens).toBe(Math.floor((length - 1) / 4) * 4)
  })

  test('streams the role, the text of each token, the reason of the end, and the end mark', async () => {
    const engine = engineOf()
    const whole = chatOf(await call(engine, chat, { messages, max_tokens: 4 }))
    const streamed = await call(engine, chat, { messages, max_tokens: 4, stream: true })
    expect(streamed.headers['content-type']).toBe('text/event-stream; charset=utf-8')
    const events = eventsOf(streamed) as { choices: { delta: { content?: string } }[] }[]
    const head = {
      id: 'chatcmpl-test-1',
      object: 'chat.completion.chunk',
      created: 1_700_000_000,
      model: 'infera-sim',
    }
    const choice = { index: 0, logprobs: null, finish_reason: null }
    expect(events[0]).toEqual({
      ...head,
      choices: [{ ...choice, delta: { role: 'assistant', content: '' } }],
    })
    const texts = events.slice(1, -2).map((event) => event.choices[0]?.delta.content)
    expect(texts).toHaveLength(4)
    expect(texts.join('')).toBe(whole.choices[0]?.message.content)
    expect(events.at(-2)).toEqual({ ...head, choices: [{ ...choice, delta: {}, finish_reason: 'length' }] })
    expect(events.at(-1)).toBe('[DONE]')
  })

  test('brings exactly one usage chunk without choices when asked to', async () => {
    const engine = engineOf()
    const body = { messages, max_tokens: 3, stream: true, stream_options: { include_usage: true } }
    const events = eventsOf(await call(engine, chat, body)) as { choices: unknown[]; usage?: object }[]
    expect(events.filter((event) => event.usage)).toEqual([events.at(-2)])
    expect(events.at(-2)).toMatchObject({
      choices: [],
      usage: { completion_tokens: 3, prompt_tokens_details: { cached_tokens: 0 } },
    })
  })

  test('ends by itself between the shortest and the longest answer, with a full stop', async () => {
    const engine = engineOf({ answerTokensMin: 5, answerTokensMax: 9 })
    const lengths = new Set<number>()
    for (let count = 0; count < 12; count++) {
      const { choices, usage } = chatOf(await call(engine, chat, { messages, seed: count }))
      expect(choices[0]?.finish_reason).toBe('stop')
      expect(choices[0]?.message.content.endsWith('.')).toBe(true)
      lengths.add(usage.completion_tokens)
    }
    expect(Math.min(...lengths)).toBeGreaterThanOrEqual(5)
    expect(Math.max(...lengths)).toBeLessThanOrEqual(9)
    expect(lengths.size).toBeGreaterThan(1)
  })

  test('goes on to its limit with ignore_eos', async () => {
    const engine = engineOf({ answerTokensMin: 5, answerTokensMax: 9 })
    const { choices, usage } = chatOf(
      await call(engine, chat, { messages, ignore_eos: true, max_completion_tokens: 30 }),
    )
    expect([choices[0]?.finish_reason, usage.completion_tokens]).toEqual(['length', 30])
  })

  test('ends before a stop string, streamed or not', async () => {
    const engine = engineOf()
    const whole = chatOf(await call(engine, chat, { messages, max_tokens: 12 })).choices[0]!.message.content
    const words = whole.split(' ')
    // A string that spans two tokens.
    const stop = `${words[4]} ${words[5]}`.slice(1)
    const expected = whole.slice(0, whole.indexOf(stop))
    const { choices } = chatOf(await call(engine, chat, { messages, max_tokens: 12, stop }))
    expect(choices[0]?.message.content).toBe(expected)
    expect(choices[0]?.finish_reason).toBe('stop')
    const events = eventsOf(
      await call(engine, chat, { messages, max_tokens: 12, stop: [stop], stream: true }),
    )
    const text = (events.slice(0, -1) as { choices: { delta: { content?: string } }[] }[])
      .map((event) => event.choices[0]?.delta.content ?? '')
      .join('')
    expect(text).toBe(expected)
  })

  test('carries the request id that came with it', async () => {
    const engine = engineOf()
    const headers = { 'x-request-id': 'abc-1' }
    const known = await call(engine, chat, { messages, max_tokens: 1 }, { request: { headers } })
    expect(JSON.parse(known.text).id).toBe('chatcmpl-abc-1')
    const strange = { 'x-request-id': 'a\nb' }
    const unknown = await call(engine, chat, { messages, max_tokens: 1 }, { request: { headers: strange } })
    expect(JSON.parse(unknown.text).id).toBe('chatcmpl-test-0')
  })

  test('is answered the same by engines of one seed, however they are set up', async () => {
    const answers = await Promise.all(
      [{}, { stepTokensMax: 2 }, { blocks: 8 }, { instanceId: 'other' }].map(async (options) =>
        chatOf(await call(engineOf(options), chat, { messages })),
      ),
    )
    const [first] = answers
    for (const { choices, usage } of answers) {
      expect(usage).toEqual(first?.usage)
      expect(choices).toEqual(first?.choices)
    }
  })
})

describe('a completion', () => {
  test('takes a string or token ids, and answers with text', async () => {
    const engine = engineOf()
    const text = 'The sea'
    const byText = JSON.parse((await call(engine, completions, { prompt: text, max_tokens: 3 })).text)
    const byIds = JSON.parse(
      (await call(engine, completions, { prompt: [...prompt.encode(text)], max_tokens: 3 })).text,
    )
    expect(byText).toMatchObject({ id: 'cmpl-test-0', object: 'text_completion' })
    expect(byIds.choices).toEqual(byText.choices)
    expect(byText.choices[0]).toMatchObject({ index: 0, finish_reason: 'length' })
    const events = eventsOf(await call(engine, completions, { prompt: text, max_tokens: 3, stream: true }))
    const chunks = events.slice(0, -1) as { object: string; choices: { text: string }[] }[]
    expect(chunks.map((chunk) => chunk.choices[0]?.text).join('')).toBe(byText.choices[0].text)
    expect(chunks[0]?.object).toBe('text_completion')
  })
})

describe('a request that cannot be served', () => {
  test.each([
    ['malformed JSON', chat, '{"messages"', 400, null, 'not valid JSON'],
    ['a body that is no object', chat, '[]', 400, null, 'JSON object'],
    ['no messages', chat, {}, 400, 'messages', 'messages'],
    ['empty messages', chat, { messages: [] }, 400, 'messages', 'messages'],
    ['another model', chat, { model: 'gpt', messages }, 404, 'model', 'The model `gpt` does not exist.'],
    ['a model that is no string', chat, { model: 3, messages }, 400, 'model', 'model'],
    ['several choices', chat, { messages, n: 2 }, 400, 'n', 'only n = 1'],
    ['no tokens to generate', chat, { messages, max_tokens: 0 }, 400, 'max_tokens', 'max_tokens'],
    ['log probabilities', chat, { messages, logprobs: true }, 400, 'logprobs', 'not simulated'],
    ['an empty stop string', chat, { messages, stop: '' }, 400, 'stop', 'stop'],
    [
      'stream options without a stream',
      chat,
      { messages, stream_options: {} },
      400,
      'stream_options',
      'stream = true',
    ],
    ['echo', completions, { prompt: 'The sea', echo: true }, 400, 'echo', 'not simulated'],
    ['several tries', completions, { prompt: 'The sea', best_of: 2 }, 400, 'best_of', 'only best_of = 1'],
    ['a batch of prompts', completions, { prompt: ['a', 'b'] }, 400, 'prompt', 'batches are not simulated'],
    ['an empty prompt', completions, { prompt: '' }, 400, 'prompt', 'no tokens'],
    ['a negative token', completions, { prompt: [-1] }, 400, 'prompt.0', 'prompt.0'],
  ])('because of %s is told why', async (_, path, body, status, param, message) => {
    const answer = await call(engineOf(), path, body)
    expect(answer.status).toBe(status)
    const { error } = JSON.parse(answer.text)
    expect(error).toMatchObject({ param, code: status })
    expect(error.message).toContain(message)
  })

  test('because it is too long is told the maximum in the words that clients know', async () => {
    const engine = engineOf({ modelTokensMax: 20 })
    const long = await call(engine, completions, { prompt: Array.from({ length: 20 }, (_, index) => index) })
    expect(long.status).toBe(400)
    expect(JSON.parse(long.text).error.message).toBe(
      "This model's maximum context length is 20 tokens. However, your request has 20 input tokens. Please reduce the length of the input messages.",
    )
    const greedy = await call(engine, completions, { prompt: [1, 2, 3], max_tokens: 18 })
    expect(JSON.parse(greedy.text).error).toMatchObject({ param: 'max_tokens', code: 400 })
    const exact = await call(engine, completions, { prompt: [1, 2, 3], max_tokens: 17, ignore_eos: true })
    expect(JSON.parse(exact.text).usage.total_tokens).toBe(20)
    const free = await call(engine, completions, { prompt: [1, 2, 3], ignore_eos: true })
    expect(JSON.parse(free.text).choices[0].finish_reason).toBe('length')
  })

  test('because its body is too large is answered with 413', async () => {
    const answer = await call(engineOf({ bodyBytesMax: 50 }), chat, { messages })
    expect(answer.status).toBe(413)
  })

  test('because the engine is full is answered with 429 and may come again', async () => {
    const engine = engineOf({ sequencesMax: 1, waitingMax: 0, timeScale: 1, clock: new VirtualClock() })
    const abort = new AbortController()
    const running = call(engine, chat, { messages }, { signal: abort.signal })
    const answer = await call(engine, chat, { messages })
    expect([answer.status, answer.headers['retry-after']]).toEqual([429, '1'])
    abort.abort(new Error('left'))
    await expect(running).rejects.toThrow('left')
  })

  test('because the engine shuts down is answered with 503, while what runs is finished', async () => {
    const engine = engineOf()
    const running = call(engine, chat, { messages })
    const closed = engine.close()
    expect((await call(engine, chat, { messages })).status).toBe(503)
    expect((await running).status).toBe(200)
    await closed
    expect((await get(engine, '/health')).status).toBe(503)
  })

  test('breaks when the engine is destroyed', async () => {
    const engine = engineOf({ timeScale: 1, clock: new VirtualClock() })
    const running = call(engine, chat, { messages, stream: true })
    await new Promise((resolve) => setImmediate(resolve))
    engine.destroy()
    await expect(running).rejects.toMatchObject({ code: 'INFERA_SIM_CLOSED' })
  })
})

describe('the other paths', () => {
  test('tell health, models, and what is not there', async () => {
    const engine = engineOf({ model: 'm', modelTokensMax: 100 })
    expect((await get(engine, '/health')).status).toBe(200)
    expect(JSON.parse((await get(engine, '/v1/models')).text)).toEqual({
      object: 'list',
      data: [{ id: 'm', object: 'model', created: 1_700_000_000, owned_by: 'infera', max_model_len: 100 }],
    })
    expect((await get(engine, '/nothing')).status).toBe(404)
    expect((await get(engine, chat)).status).toBe(405)
  })

  test('tell load and cache under the names of vLLM', async () => {
    const clock = new VirtualClock()
    const engine = engineOf({ model: 'a"b', timeScale: 1, clock, blocks: 100, blockSizeTokens: 4 })
    const value = (text: string, name: string) =>
      Number(
        text
          .split('\n')
          .find((line) => line.startsWith(`${name}{`) || line.startsWith(`${name}_`))
          ?.split(' ')
          .at(-1),
      )
    const running = call(engine, completions, {
      prompt: Array.from({ length: 40 }, (_, index) => index),
      max_tokens: 2,
    })
    const again = call(engine, completions, {
      prompt: Array.from({ length: 40 }, (_, index) => index),
      max_tokens: 2,
    })
    const during = (await get(engine, '/metrics?x=1')).text
    expect(during).toContain('vllm:num_requests_running{model_name="a\\"b",engine="0"} 1\n')
    expect(value(during, 'vllm:num_requests_waiting')).toBe(1)
    expect(value(during, 'vllm:kv_cache_usage_perc')).toBe(0.1)
    expect(engine.load()).toEqual({ runningRequests: 1, waitingRequests: 1, kvUsageRatio: 0.1 })
    await clock.advanceAsync(1000)
    await Promise.all([running, again])
    const { text, headers } = await get(engine, '/metrics')
    expect(headers['content-type']).toContain('version=0.0.4')
    expect(value(text, 'vllm:prompt_tokens_total')).toBe(80)
    expect(value(text, 'vllm:generation_tokens_total')).toBe(4)
    expect(value(text, 'vllm:prefix_cache_queries_total')).toBe(80)
    expect(value(text, 'vllm:prefix_cache_hits_total')).toBe(36)
    expect(text).toContain('vllm:time_to_first_token_seconds_count{model_name="a\\"b",engine="0"} 2\n')
    expect(text).toContain('le="+Inf"} 2\n')
    expect(text).toContain('vllm:cache_config_info{block_size="4",num_gpu_blocks="100"')
    // Every series is announced, and every line is a comment or a sample.
    for (const line of text.trimEnd().split('\n')) {
      expect(line).toMatch(/^(# (HELP|TYPE) vllm:\w+ .+|vllm:\w+\{[^}]*\} \d[\d.e+-]*)$/)
    }
  })
})
