import type { Worker } from 'node:worker_threads'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { modelFolder, tinyTokenizer } from '../../../test/prompt/tiny-model.js'
import { PromptError } from '../../errors.js'
import { loadPromptModel } from '../load-prompt-model.js'
import type { InferencePath, PromptModel } from '../prompt-model.js'
import { PromptThreads } from './prompt-threads.js'
import { tokenizeRawBody } from './raw-prompts.js'
import { startThread } from './start-thread.js'
import type { ThreadData, ThreadJob, ThreadReply } from './thread-messages.js'
import type { ThreadOutcome, ThreadWorker } from './tokenizing-thread.js'

const chat: InferencePath = '/v1/chat/completions'
const completions: InferencePath = '/v1/completions'
const template = `{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% if m.meta %}{{ m.meta | tojson }}{% endif %}<|end|>{% endfor %}{% if fail %}{{ raise_exception('no') }}{% endif %}`
const bytesOf = (body: unknown) => Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
const says = (content: string, more = {}) => ({ model: 'm', messages: [{ role: 'user', content }], ...more })

let folder: Awaited<ReturnType<typeof modelFolder>>
let model: PromptModel
beforeAll(async () => {
  folder = await modelFolder({ 'tokenizer.json': tinyTokenizer(), 'chat_template.jinja': template })
  model = await loadPromptModel(folder.path)
})
afterAll(async () => {
  await folder[Symbol.asyncDispose]()
})

async function outcomeOf(threads: PromptThreads, path: InferencePath, rawBody: Uint8Array) {
  const outcome = threads.tokenize({ model: 'm', path, rawBody })
  if (!outcome) throw new Error('the threads are busy')
  return outcome
}

function codeOf(outcome: ThreadOutcome): string | undefined {
  return 'error' in outcome && outcome.error instanceof PromptError ? outcome.error.code : undefined
}

describe('on a real thread', () => {
  let threads: PromptThreads
  beforeAll(() => {
    threads = new PromptThreads({ models: [{ name: 'm', folder: folder.path }], threadsMax: 1 })
  })
  afterAll(() => threads.close())

  test.each<[string, InferencePath, unknown]>([
    ['a chat', chat, says('Hello, 世界 👩‍👩‍👧 <|end|>')],
    [
      'a chat whose text says more than its parsed body',
      chat,
      '{"messages":[{"role":"user","content":"x","meta":{"b":1.0,"1":12345678901234567890}}]}',
    ],
    ['a completion', completions, { prompt: 'Hello' }],
    ['token ids', completions, { prompt: [1, 2, 3] }],
    ['a batch of texts', completions, { prompt: ['Hello', '', 'wörld'] }],
    ['a batch of token ids', completions, { prompt: [[1, 2], [3], [0xffff_ffff]] }],
    [
      'bytes that are no UTF-8',
      completions,
      Buffer.from([...bytesOf('{"prompt":"a'), 0xff, ...bytesOf('"}')]).toString('latin1'),
    ],
  ])('%s has the tokens that it has here', async (_name, path, body) => {
    const rawBody = bytesOf(body)
    expect(await outcomeOf(threads, path, rawBody)).toEqual({
      prompts: tokenizeRawBody(model, path, rawBody),
    })
  })

  test.each<[string, InferencePath, unknown]>([
    ['a template that fails', chat, says('x', { chat_template_kwargs: { fail: true } })],
    ['text that is no JSON', chat, '{'],
    ['a body without a prompt', completions, {}],
    ['a prompt that the engine cuts', completions, { prompt: 'x', truncate_prompt_tokens: 1 }],
    ['a batch that is too large', completions, { prompt: Array.from({ length: 257 }, () => 'x') }],
  ])('%s fails as it fails here', async (_name, path, body) => {
    const rawBody = bytesOf(body)
    let expected: unknown
    try {
      tokenizeRawBody(model, path, rawBody)
    } catch (error) {
      expected = error
    }
    expect(expected).toBeInstanceOf(PromptError)
    const outcome = await outcomeOf(threads, path, rawBody)
    expect(codeOf(outcome)).toBe((expected as PromptError).code)
    expect('error' in outcome && outcome.error.message).toBe((expected as PromptError).message)
  })

  test('many at once are answered in order, each with its own, and the bodies stay whole', async () => {
    const bodies = Array.from({ length: 40 }, (_, index) => bytesOf(says(`turn ${index} `.repeat(index + 1))))
    const order: number[] = []
    const outcomes = await Promise.all(
      bodies.map(async (rawBody, index) => {
        const outcome = await outcomeOf(threads, chat, rawBody)
        order.push(index)
        return outcome
      }),
    )
    expect(order).toEqual([...bodies.keys()])
    expect(outcomes).toEqual(bodies.map((rawBody) => ({ prompts: tokenizeRawBody(model, chat, rawBody) })))
  })
})

test('options of a model are those of its thread', async () => {
  const models = [{ name: 'm', folder: folder.path, options: { promptsMax: 1 } }]
  const threads = new PromptThreads({ models, threadsMax: 1 })
  const outcome = await outcomeOf(threads, completions, bytesOf({ prompt: ['a', 'b'] }))
  expect(codeOf(outcome)).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
  await threads.close()
})

test('a folder that is gone or another one by now gives no tokens', async () => {
  const { path } = folder
  const models = [
    { name: 'm', folder: `${path}-gone` },
    { name: 'other', folder: path, tokenizerDigest: '0000000000000000' },
    { name: 'same', folder: path, tokenizerDigest: model.tokenizerDigest },
  ]
  const threads = new PromptThreads({ models, threadsMax: 1 })
  const rawBody = bytesOf({ prompt: 'x' })
  const outcomes = await Promise.all(
    models.map(({ name }) => threads.tokenize({ model: name, path: completions, rawBody })),
  )
  const refused = 'INFERA_ROUTER_NOT_TOKENIZABLE'
  expect(outcomes.map((outcome) => outcome && codeOf(outcome))).toEqual([refused, refused, undefined])
  await threads.close()
})

test('a thread that dies fails what it was given, and another takes its place', async () => {
  const started: Worker[] = []
  const start = (data: ThreadData) => {
    const worker = startThread(data)
    started.push(worker)
    return worker
  }
  const threads = new PromptThreads({ models: [{ name: 'm', folder: folder.path }], threadsMax: 1, start })
  const rawBody = bytesOf({ prompt: 'x' })
  await outcomeOf(threads, completions, rawBody)
  const ended = started[0]?.terminate() // from here on it runs nothing
  const lost = [outcomeOf(threads, completions, rawBody), outcomeOf(threads, completions, rawBody)]
  await ended
  expect((await Promise.all(lost)).map(codeOf)).toEqual(lost.map(() => 'INFERA_ROUTER_NOT_TOKENIZABLE'))
  expect(threads.jobCount).toBe(0)
  expect(await outcomeOf(threads, completions, rawBody)).toHaveProperty('prompts')
  expect(started).toHaveLength(2)
  expect(threads.canRun).toBe(true)
  await threads.close()
})

/** A thread that does what a test says, when it says so. */
class HeldThread implements ThreadWorker {
  readonly jobs: ThreadJob[] = []
  isTerminated = false
  isHolding = true
  readonly #listeners = new Map<string, (value: unknown) => void>()

  on(event: string, listener: (value: never) => void): void {
    this.#listeners.set(event, listener as (value: unknown) => void)
  }
  postMessage(job: ThreadJob): void {
    this.jobs.push(job)
  }
  ref(): void {
    this.isHolding = true
  }
  unref(): void {
    this.isHolding = false
  }
  async terminate(): Promise<void> {
    this.isTerminated = true
    this.#listeners.get('exit')?.(1)
  }
  say(reply: ThreadReply): void {
    this.#listeners.get('message')?.(reply)
  }
  answer(): void {
    const job = this.jobs.shift()
    if (job) this.say({ type: 'tokens', id: job.id, prompts: [Uint32Array.of(job.id)] })
  }
  die(error = new Error('out of memory')): void {
    this.#listeners.get('error')?.(error)
    this.#listeners.get('exit')?.(1)
  }
}

function held(options: { threadsMax?: number; queueMax?: number; queueBytesMax?: number } = {}) {
  const started: HeldThread[] = []
  const clock = { nowMs: 0 }
  const start = () => {
    const thread = new HeldThread()
    started.push(thread)
    return thread
  }
  const threads = new PromptThreads({ models: [], threadsMax: 1, start, now: () => clock.nowMs, ...options })
  const ask = (text = 'x', model = 'm') =>
    threads.tokenize({ model, path: completions, rawBody: bytesOf(text) })
  return { threads, started, clock, ask }
}

describe('with threads that a test holds', () => {
  test('nothing is started before it is needed, and only work holds the process open', () => {
    const { started, ask } = held({ threadsMax: 4 })
    expect(started).toHaveLength(0)
    void ask()
    void ask()
    expect(started.map(({ isHolding }) => isHolding)).toEqual([true])
    started[0]?.answer()
    expect(started[0]?.isHolding).toBe(true)
    started[0]?.answer()
    expect(started[0]?.isHolding).toBe(false)
  })

  test('beyond the bound of jobs none is taken, until one is answered', async () => {
    const { started, ask } = held({ queueMax: 2 })
    const first = ask()
    void ask()
    expect(ask()).toBeUndefined()
    started[0]?.answer()
    expect(await first).toEqual({ prompts: [Uint32Array.of(0)] })
    expect(ask()).toBeDefined()
    expect(ask()).toBeUndefined()
  })

  test('beyond the bound of bytes none is taken, until some are answered', () => {
    const { started, ask } = held({ queueBytesMax: 10 })
    expect(ask('x'.repeat(11))).toBeUndefined()
    expect(ask('x'.repeat(8))).toBeDefined()
    expect(ask('xxx')).toBeUndefined()
    expect(ask('xx')).toBeDefined()
    started[0]?.answer()
    expect(ask('x'.repeat(8))).toBeDefined()
  })

  test('a conversation stays on its thread, and leaves it while that is far behind', () => {
    const { started, ask } = held({ threadsMax: 2 })
    const opening = 'o'.repeat(1024)
    for (let turn = 0; turn < 4; turn++) void ask(`${opening}${turn}`)
    expect(started.map(({ jobs }) => jobs.length)).toEqual([4])
    void ask(`${opening}4`)
    expect(started.map(({ jobs }) => jobs.length)).toEqual([4, 1])
    started[0]?.answer()
    started[0]?.answer()
    void ask(`${opening}5`)
    expect(started.map(({ jobs }) => jobs.length)).toEqual([3, 1])
  })

  test('conversations and models are spread', () => {
    const { started, ask } = held({ threadsMax: 2 })
    for (let index = 0; index < 20; index++) {
      void ask(`conversation ${index}`)
      for (const thread of started) thread.answer()
    }
    expect(started).toHaveLength(2)
  })

  test('threads that end before they answer are given a rest, and then tried again', async () => {
    const { threads, started, clock, ask } = held()
    for (let count = 1; count <= 8; count++) {
      const outcome = ask()
      started.at(-1)?.say({ type: 'ready' })
      started.at(-1)?.die()
      expect(outcome && codeOf(await outcome)).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
      expect(started).toHaveLength(count)
    }
    const refused = ask()
    expect(refused && codeOf(await refused)).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
    expect(started).toHaveLength(8)
    clock.nowMs = 60_000
    void ask()
    expect(started).toHaveLength(9)
    expect(threads.canRun).toBe(true)
  })

  test('where the first thread cannot start, threads cannot run; where a later one cannot, they can', async () => {
    const broken = held()
    const outcome = broken.ask()
    broken.started[0]?.die(new Error('no such file'))
    expect(outcome && codeOf(await outcome)).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
    expect(broken.threads.canRun).toBe(false)

    const sound = held()
    void sound.ask()
    sound.started[0]?.say({ type: 'ready' })
    sound.started[0]?.die()
    void sound.ask()
    sound.started[1]?.die()
    expect(sound.threads.canRun).toBe(true)
  })

  test('a start that throws fails the job', async () => {
    const threads = new PromptThreads({
      models: [],
      start: () => {
        throw new Error('no threads here')
      },
    })
    const outcome = await outcomeOf(threads, completions, bytesOf('x'))
    expect(codeOf(outcome)).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
    expect(threads.canRun).toBe(false)
  })

  test('close settles what waits, ends all threads, and may be called twice', async () => {
    const { threads, started, ask } = held({ threadsMax: 2 })
    const waiting = Array.from({ length: 6 }, () => ask())
    await Promise.all([threads.close(), threads.close()])
    const codes = (await Promise.all(waiting)).map((outcome) => outcome && codeOf(outcome))
    expect(codes).toEqual(waiting.map(() => 'INFERA_ROUTER_NOT_TOKENIZABLE'))
    expect(started.every(({ isTerminated }) => isTerminated)).toBe(true)
    const count = started.length
    const late = ask()
    expect(late && codeOf(await late)).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
    expect(started).toHaveLength(count)
  })
})
