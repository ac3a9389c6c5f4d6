import { describe, expect, test } from 'vitest'
import { InvalidSimOptionsError } from './errors.js'
import { resolveEngineOptions } from './options.js'

describe('engine options', () => {
  test('default to a model length that the KV blocks can hold', () => {
    expect(resolveEngineOptions({}).modelTokensMax).toBe(131_072)
    expect(resolveEngineOptions({ blocks: 10, blockSizeTokens: 8 }).modelTokensMax).toBe(80)
  })

  test.each([
    [{ blocks: 0 }, 'blocks'],
    [{ timeScale: -1 }, 'timeScale'],
    [{ blocks: 2, modelTokensMax: 33 }, 'modelTokensMax'],
    [{ answerTokensMin: 9, answerTokensMax: 8 }, 'answerTokensMax'],
    [{ blokcs: 4 } as object, 'blokcs'],
  ])('%j are refused by name', (options, name) => {
    expect(() => resolveEngineOptions(options)).toThrow(InvalidSimOptionsError)
    expect(() => resolveEngineOptions(options)).toThrow(name)
  })
})
