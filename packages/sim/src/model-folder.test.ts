import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { loadPromptModel } from '@infera/router/prompt'
import { describe, expect, test } from 'vitest'
import { makeModel } from '../scripts/make-model.mjs'
import { simModelFolder } from './model-folder.js'

describe('the shipped model folder', () => {
  test('holds exactly what its script makes', () => {
    const files = readdirSync(simModelFolder).map((name) => [
      name,
      readFileSync(join(simModelFolder, name), 'utf8'),
    ])
    expect(new Map(files as [string, string][])).toEqual(makeModel())
  })

  test('renders roles, tools, tool calls and tool results, and has special tokens that are one id each', async () => {
    const prompt = await loadPromptModel(simModelFolder)
    const weather = { type: 'function', function: { name: 'weather', parameters: { type: 'object' } } }
    const call = { id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"city": "Rome"}' } }
    const text = prompt.renderChat({
      tools: [weather],
      messages: [
        { role: 'system', content: 'Be short.' },
        { role: 'user', content: [{ type: 'text', text: 'Is it warm?' }] },
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c1', content: '31 °C' },
      ],
    })
    expect(text).toBe(
      [
        '<|im_start|>system\nBe short.\n',
        'Functions that may be called, one JSON object per line:',
        '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}',
        '<|im_end|>\n<|im_start|>user\nIs it warm?<|im_end|>',
        '<|im_start|>assistant\n',
        '{"name": "weather", "arguments": {"city": "Rome"}}<|im_end|>',
        '<|im_start|>tool\n31 °C<|im_end|>\n<|im_start|>assistant\n',
      ].join('\n'),
    )
    for (const special of ['<|im_start|>', '<|im_end|>', '<|endoftext|>']) {
      expect(prompt.encode(special)).toHaveLength(1)
    }
    expect(prompt.decode(prompt.encode(text))).toBe(text)
  })

  test('turns any bytes into tokens and back', async () => {
    const prompt = await loadPromptModel(simModelFolder)
    const text = ' The river, 你好 🦄\n\n\tnaïve "quotes" it\'s TheThe McDonald 3.14'
    expect(prompt.decode(prompt.encode(text))).toBe(text)
  })
})
