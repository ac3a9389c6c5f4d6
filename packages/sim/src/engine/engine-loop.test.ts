import { type Clock, silentLogger, VirtualClock } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { resolveEngineOptions, type SimEngineOptions } from '../options.js'
import { wordPrompt } from '../testing/word-prompt.js'
import { EngineCore } from './engine-core.js'

const turn = () => new Promise((resolve) => setImmediate(resolve))
const prompt = wordPrompt()

/** Every step takes 10 ms. */
const tenMs = { weightsReadMs: 7, contextReadMs: 0, prefillTokensPerSecond: 1e9 }

/** @param timing.lateMs by how much each timer is late */
function coreOf(options: SimEngineOptions, timing = { lateMs: 0 }) {
  const clock = new VirtualClock()
  const lateClock: Clock = {
    now: () => clock.now(),
    setTimer: (delayMs, callback) => clock.setTimer(delayMs + timing.lateMs, callback),
  }
  const core = new EngineCore(
    resolveEngineOptions(options),
    { prompt, clock: lateClock, wallClock: () => 0, logger: silentLogger },
    'test',
  )
  return { clock, core }
}
const promptTokens = Uint32Array.from({ length: 40 }, (_, index) => index)

describe('the loop in modelled time', () => {
  test('ends steps at absolute times, so that late timers do not add up', () => {
    const { clock, core } = coreOf(tenMs, { lateMs: 4 })
    const { generatedTokens } = core.submit({ promptTokens, answerTokensMax: 50, ignoresEnd: true })
    for (let step = 1; step <= 20; step++) {
      clock.advance(10 * step + 3 - clock.now())
      expect(generatedTokens()).toBe(step - 1)
      clock.advance(1)
      expect(generatedTokens()).toBe(step)
    }
    core.destroy()
    expect(clock.pendingTimers).toBe(0)
  })

  test('catches up step by step after a stall, and lets aborts in between', async () => {
    const { clock, core } = coreOf(tenMs, { lateMs: 95 })
    const abort = new AbortController()
    const { generatedTokens, generation } = core.submit({
      ...{ promptTokens, answerTokensMax: 50, ignoresEnd: true },
      signal: abort.signal,
    })
    clock.advance(105)
    expect(generatedTokens()).toBe(1)
    await turn()
    expect(generatedTokens()).toBe(2)
    await turn()
    expect(generatedTokens()).toBe(3)
    abort.abort(new Error('enough'))
    await turn()
    expect(generatedTokens()).toBe(3)
    expect(core.requests).toBe(0)
    expect(core.pool.usedBlocks).toBe(0)
    expect(clock.pendingTimers).toBe(0)
    expect(generation.isSettled).toBe(true)
  })

  test('scales with timeScale', () => {
    const { clock, core } = coreOf({ ...tenMs, timeScale: 0.5 })
    const { generatedTokens } = core.submit({ promptTokens, answerTokensMax: 4, ignoresEnd: true })
    clock.advance(4.9)
    expect(generatedTokens()).toBe(0)
    clock.advance(0.2)
    expect(generatedTokens()).toBe(1)
    clock.advance(100)
    expect(generatedTokens()).toBe(4)
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('the loop in no time', () => {
  test('lets the event loop turn between steps', async () => {
    const { core } = coreOf({ timeScale: 0 })
    const { generatedTokens } = core.submit({ promptTokens, answerTokensMax: 3, ignoresEnd: true })
    const seen: number[] = []
    for (let count = 0; count < 5; count++) {
      await turn()
      seen.push(generatedTokens())
    }
    expect(seen).toEqual([1, 2, 3, 3, 3])
  })

  test('an abort between two steps ends the request with its reason and frees its blocks', async () => {
    const { core } = coreOf({ timeScale: 0 })
    const abort = new AbortController()
    const { generation } = core.submit({
      promptTokens,
      answerTokensMax: 50,
      ignoresEnd: true,
      signal: abort.signal,
    })
    await turn()
    abort.abort(new Error('client left'))
    await expect(async () => {
      for await (const _ of generation);
    }).rejects.toThrow('client left')
    await turn()
    expect(core.requests).toBe(0)
    expect(core.pool.usedBlocks).toBe(0)
  })

  test('a reader that leaves ends its request', async () => {
    const { core } = coreOf({ timeScale: 0 })
    const { generation } = core.submit({ promptTokens, answerTokensMax: 5000, ignoresEnd: true })
    for await (const _ of generation) break
    await turn()
    expect(core.requests).toBe(0)
  })
})

describe('the life of an engine', () => {
  test('refuses requests beyond those that may run and wait', () => {
    const { core } = coreOf({ sequencesMax: 1, waitingMax: 1 })
    core.submit({ promptTokens })
    core.submit({ promptTokens })
    expect(() => core.submit({ promptTokens })).toThrow('the engine holds 2 requests')
    core.destroy()
  })

  test('close waits for what runs and refuses what comes', async () => {
    const { core } = coreOf({ timeScale: 0 })
    const { generation } = core.submit({ promptTokens, answerTokensMax: 3 })
    const closed = core.close()
    expect(() => core.submit({ promptTokens })).toThrow('shutting down')
    await closed
    expect(core.state).toBe('closed')
    let pieces = 0
    for await (const _ of generation) pieces++
    expect(pieces).toBe(3)
  })

  test('destroy ends what runs with an error, also while closing', async () => {
    const { core } = coreOf({})
    const { generation } = core.submit({ promptTokens })
    const closed = core.close()
    core.destroy(new Error('pulled'))
    await closed
    expect(core.pool.usedBlocks).toBe(0)
    await expect(async () => {
      for await (const _ of generation);
    }).rejects.toThrow('pulled')
  })

  test('a broken invariant ends every request with it and closes the engine', async () => {
    const { core } = coreOf({ timeScale: 0 })
    const { generation } = core.submit({ promptTokens, answerTokensMax: 5 })
    core.pool.take = () => {
      throw new Error('broken on purpose')
    }
    await expect(async () => {
      for await (const _ of generation);
    }).rejects.toThrow('broken on purpose')
    expect(core.state).toBe('closed')
    await core.close()
  })

  test('publishes evictions when a step begins and stores when it ends', () => {
    const { clock, core } = coreOf({ blocks: 3, modelTokensMax: 48 })
    const published: number[] = []
    core.events.subscribe(({ sequence }) => published.push(sequence))
    core.submit({ promptTokens, answerTokensMax: 1 })
    expect(published).toEqual([])
    clock.advance(1000)
    expect(published).toEqual([0])
    core.submit({ promptTokens: promptTokens.map((token) => token + 100), answerTokensMax: 1 })
    expect(published).toEqual([0, 1])
    clock.advance(1000)
    expect(published).toEqual([0, 1, 2])
  })
})
