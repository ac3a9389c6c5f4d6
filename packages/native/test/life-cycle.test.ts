import { beforeEach, describe, expect, test } from 'vitest'
import { runChild, skipWithoutAddon } from './support/addon.js'

beforeEach(skipWithoutAddon)

describe('a process ends as it was told to', () => {
  test.each([
    ['after load', 3],
    ['with everything alive', 0],
    ['exit with everything alive', 3],
    ['exit in the middle of applies', 3],
    ['after close', 3],
    ['use in an exit handler', 3],
    ['exit while workers work', 3],
    ['uncaught error', 1],
  ])('%s: with code %i', async (step, code) => {
    const ended = await runChild('life-cycle.ts', [step])
    expect({ ...ended, stderr: step === 'uncaught error' ? '' : ended.stderr }).toMatchObject({
      code,
      signal: null,
      stderr: '',
    })
  })
})

describe('threads end while others go on', () => {
  test.each([
    ['worker gone', 'a worker that exits in the middle of applies takes its view along, and nothing else'],
    ['worker terminated', 'a worker that is terminated takes its view along, and nothing else'],
    ['worker made it', 'an index outlives the worker that made it, for who opened it'],
  ])('%s: %s', async (step) => {
    expect(await runChild('life-cycle.ts', [step])).toMatchObject({ code: 0, signal: null, stderr: '' })
  })
})
