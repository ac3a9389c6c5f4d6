import { describe, expect, test } from 'vitest'
import { Generation } from './generation.js'

function rig(stopStrings: readonly string[] = []) {
  const seen = { settled: 0, abandoned: 0 }
  const generation = new Generation(stopStrings, {
    settled: () => {
      seen.settled++
    },
    abandoned: () => {
      seen.abandoned++
    },
  })
  return { generation, seen }
}

async function textOf(generation: Generation): Promise<string> {
  let text = ''
  for await (const piece of generation) text += piece.text
  return text
}

describe('a generation', () => {
  test('brings its pieces in order to a reader that came early', async () => {
    const { generation, seen } = rig()
    const read = textOf(generation)
    for (const text of ['a', 'b', 'c']) {
      generation.accept(text, text === 'c' ? 'length' : null)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(await read).toBe('abc')
    expect(seen).toEqual({ settled: 1, abandoned: 0 })
  })

  test('ends at a stop string that is spread over tokens', async () => {
    const { generation } = rig(['b c'])
    expect(generation.accept('a b', null)).toBe(false)
    expect(generation.accept(' cd', null)).toBe(true)
    expect(await textOf(generation)).toBe('a ')
  })

  test('tells that its reader left', async () => {
    const { generation, seen } = rig()
    generation.accept('a', null)
    for await (const _ of generation) break
    expect(seen).toEqual({ settled: 0, abandoned: 1 })
  })

  test('throws its failure after what was generated, and ignores a failure after its end', async () => {
    const failed = rig()
    failed.generation.accept('a', null)
    failed.generation.fail(new Error('gone'))
    const pieces: string[] = []
    const read = async () => {
      for await (const { text } of failed.generation) pieces.push(text)
    }
    await expect(read()).rejects.toThrow('gone')
    expect(pieces).toEqual(['a'])
    const ended = rig()
    ended.generation.accept('a', 'stop')
    ended.generation.fail(new Error('gone'))
    expect(await textOf(ended.generation)).toBe('a')
    expect(ended.seen.settled).toBe(1)
  })
})
