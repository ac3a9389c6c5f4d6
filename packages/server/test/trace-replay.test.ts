import { describe, expect, test } from 'vitest'
import { TestFleet } from './support/test-fleet.js'
import { conversationTrace, promptTokens } from './support/trace.js'

const requestCount = 600
const blockSizeTokens = 16
/** Ids of ordinary byte and word tokens of the simulated model. */
const vocabulary = Array.from({ length: 200 }, (_, index) => index + 1)

interface Replay {
  readonly cachedTokens: number
  readonly answers: readonly string[]
}

/** Sends the trace, one request after the other, each once the router's view of every cache has settled. */
async function replay(policy: 'kv-aware' | 'round-robin', workers: number): Promise<Replay> {
  await using fleet = await TestFleet.start({
    workers,
    server: { policy, overlapWeight: 1 },
    engine: { blocks: 8000, blockSizeTokens, timeScale: 0 },
  })
  const answers: string[] = []
  let cachedTokens = 0
  for (const { hashIds } of conversationTrace(requestCount).requests) {
    const prompt = promptTokens(hashIds, blockSizeTokens, vocabulary)
    const { status, body } = await fleet.post('/v1/completions', {
      model: 'infera-sim',
      prompt,
      max_tokens: 8,
    })
    expect(status).toBe(200)
    answers.push(body.choices[0].text)
    cachedTokens += body.usage.prompt_tokens_details.cached_tokens
    expect(body.usage.prompt_tokens).toBe(prompt.length)
    await fleet.viewsSettled()
  }
  return { cachedTokens, answers }
}

describe('a conversation trace against four simulated workers', () => {
  test('kv-aware finds at least 1.5 times the cached tokens of round-robin, and no answer depends on who gave it', async () => {
    const alone = await replay('round-robin', 1)
    const roundRobin = await replay('round-robin', 4)
    const kvAware = await replay('kv-aware', 4)
    const gain = kvAware.cachedTokens / roundRobin.cachedTokens
    console.log(
      `cached tokens: kv-aware ${kvAware.cachedTokens}, round-robin ${roundRobin.cachedTokens}, gain ${gain.toFixed(2)}`,
    )

    expect(roundRobin.cachedTokens).toBeGreaterThan(0)
    expect(gain).toBeGreaterThanOrEqual(1.5)
    expect(alone.answers.every((answer) => /\w/.test(answer))).toBe(true)
    expect(roundRobin.answers).toEqual(alone.answers)
    expect(kvAware.answers).toEqual(alone.answers)
  }, 300_000)
})
