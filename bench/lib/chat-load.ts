import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setImmediate, setTimeout } from 'node:timers/promises'
import {
  EmbeddedDiscovery,
  type KvEventMessage,
  type KvEventTransport,
  type RequestTransport,
} from '@infera/fleet'
import { type ModelOptions, Router } from '@infera/router'
import { instantAnswer, instantRecord } from './instant-worker.js'

export interface ChatLoadResult {
  readonly requestsPerSecond: number
  /** Of the event loop that the router runs on, and that makes the requests as well. */
  readonly delayP99Ms: number
}

const path = '/v1/chat/completions'
const conversationCount = 8
const workerCount = 4
/** With it a message has about 1000 tokens. */
const wordsPerMessage = 500
const messagesAtStart = 60

/**
 * Chats of about 60k tokens that go on turn by turn, over a router whose engines answer at once. Each chat was seen once before
 * the time counts; every request has one answer and one question more than the one before it.
 */
export class ChatLoad {
  readonly #router: Router
  readonly #chats: Message[][]
  readonly #model: string

  private constructor(router: Router, model: string) {
    this.#router = router
    this.#model = model
    this.#chats = Array.from({ length: conversationCount }, (_, chat) =>
      Array.from({ length: messagesAtStart - 1 }, (_, at) => message(chat, at)),
    )
  }

  static async start(model: ModelOptions): Promise<ChatLoad> {
    const discovery = new EmbeddedDiscovery()
    for (let at = 0; at < workerCount; at++)
      discovery.registerNow({
        kind: 'worker',
        record: { ...instantRecord(model.name), worker_id: `instant:${at}`, url: `link://instant:${at}` },
      })
    const router = new Router({ discovery, transports: [instantly], kvEvents: [quietly], models: [model] })
    await router.start()
    const load = new ChatLoad(router, model.name)
    for (const chat of load.#chats) await load.#ask(chat)
    return load
  }

  /** As fast as all chats go, each one request at a time; or at a pace, in requests per second. */
  async measure(requestCount: number, pace = Number.POSITIVE_INFINITY): Promise<ChatLoadResult> {
    const delay = monitorEventLoopDelay({ resolution: 1 })
    delay.enable()
    const startedMs = performance.now()
    let begun = 0
    const converse = async (chat: Message[]) => {
      while (begun < requestCount) {
        const dueMs = startedMs + (begun++ * 1000) / pace
        if (dueMs > performance.now()) await setTimeout(dueMs - performance.now())
        // A chat has the length it is named for: once it is much longer, it begins anew with what was said first.
        if (chat.length > messagesAtStart + 10) chat.length = messagesAtStart - 1
        const at = chat.length
        chat.push(message(startedMs, at), message(startedMs, at + 1))
        await this.#ask(chat)
      }
    }
    await Promise.all(this.#chats.map(converse))
    const tookMs = performance.now() - startedMs
    delay.disable()
    return {
      requestsPerSecond: (requestCount * 1000) / tookMs,
      delayP99Ms: Math.max(0, delay.percentile(99) / 1e6 - 1),
    }
  }

  close(): Promise<void> {
    return this.#router.close()
  }

  async #ask(messages: readonly Message[]): Promise<void> {
    await setImmediate() // as a request that comes from a socket, each in a turn of its own
    const rawBody = Buffer.from(JSON.stringify({ model: this.#model, messages }))
    const body = JSON.parse(rawBody.toString('utf8')) as Record<string, unknown>
    const { body: answer, placements } = await this.#router.dispatch({ path, body, rawBody })
    for await (const _ of answer);
    const reason = placements.at(-1)?.noLocality
    if (reason) throw new Error(`a prompt was not looked at: ${reason}`)
  }
}

interface Message {
  readonly role: 'user' | 'assistant'
  readonly content: string
}

function message(seed: number, at: number): Message {
  const words = Array.from(
    { length: wordsPerMessage },
    (_, word) => `word${Math.abs(Math.imul(word + at * 31 + Math.floor(seed), 2654435761)) % 977}`,
  )
  return { role: at % 2 === 0 ? 'user' : 'assistant', content: `${seed} ${at} ${words.join(' ')}` }
}

const instantly: RequestTransport = {
  kind: 'link',
  send: (_worker, { body }) => Promise.resolve(instantAnswer(body)),
  close: () => Promise.resolve(),
}

/** Caches that are empty and stay so: what is measured is the way to the decision. */
const quietly: KvEventTransport = {
  kind: 'quiet',
  serves: () => true,
  async *subscribe(_worker, { signal } = {}): AsyncGenerator<KvEventMessage> {
    yield { type: 'snapshot', rank: 0, sequence: -1, payloads: [] }
    await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve(), { once: true }))
  },
}
