import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ModelFolderError, PromptError } from '../../src/errors.js'
import { type LoadPromptModelOptions, loadPromptModel } from '../../src/prompt/load-prompt-model.js'
import type { InferenceBody, InferencePath, PromptModel } from '../../src/prompt/prompt-model.js'
import { digestTokenizer } from '../../src/prompt/tokenizer-digest.js'
import { modelFolder, tinyTokenizer } from './tiny-model.js'

const plain = '{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor %}'

async function load(files: Readonly<Record<string, unknown>>, options?: LoadPromptModelOptions) {
  await using folder = await modelFolder({ 'tokenizer.json': tinyTokenizer(), ...files })
  return await loadPromptModel(folder.path, options)
}

const withTemplate = (template: unknown) => load({ 'tokenizer_config.json': { chat_template: template } })
const ask = (content: string, more: InferenceBody = {}) => ({
  messages: [{ role: 'user', content }],
  ...more,
})
const bytes = (text: string) => Uint32Array.from(Buffer.from(text))

function promptError(run: () => unknown): PromptError {
  try {
    run()
  } catch (error) {
    if (error instanceof PromptError) return error
    throw error
  }
  throw new Error('expected a PromptError')
}

test('a folder with tokenizer.json alone tokenizes completions, and says what chat lacks', async () => {
  const model = await load({})
  expect(model.tokenize('/v1/completions', { prompt: 'hé' })).toEqual(
    Uint32Array.of(256, ...Buffer.from('hé')),
  )
  const error = promptError(() => model.tokenize('/v1/chat/completions', ask('x')))
  expect(error.code).toBe('INFERA_ROUTER_TEMPLATE_FAILED')
  expect(error.message).toContain('no chat template')
})

test('chat prompts are encoded without special tokens, unless the request asks for them', async () => {
  const model = await withTemplate('{{ messages[0].content }}')
  expect(model.tokenize('/v1/chat/completions', ask('ab'))).toEqual(bytes('ab'))
  expect(model.tokenize('/v1/chat/completions', ask('ab', { add_special_tokens: true }))).toEqual(
    Uint32Array.of(256, ...bytes('ab')),
  )
})

test('completion prompts are encoded with special tokens, unless the request turns them off', async () => {
  const model = await load({})
  expect(model.tokenize('/v1/completions', { prompt: 'ab' })).toEqual(Uint32Array.of(256, ...bytes('ab')))
  expect(model.tokenize('/v1/completions', { prompt: 'ab', add_special_tokens: false })).toEqual(bytes('ab'))
})

test('token ids are taken as they are', async () => {
  const model = await load({})
  const prompt = [0, 4294967295, 7]
  expect(model.tokenize('/v1/completions', { prompt })).toEqual(Uint32Array.from(prompt))
})

test.each([
  ['a batch of texts', ['a', 'b']],
  ['a batch of one text', ['a']],
  ['a batch of token lists', [[1], [2]]],
  ['an empty list', []],
  ['a negative id', [1, -1]],
  ['an id that is no integer', [1.5]],
  ['an id beyond 32 bits', [4294967296]],
  ['a list of ids and texts', [1, 'a']],
  ['no prompt', undefined],
  ['a number', 5],
])('a completion prompt that is %s cannot be tokenized', async (_name, prompt) => {
  const model = await load({})
  const error = promptError(() => model.tokenize('/v1/completions', { prompt }))
  expect(error.code).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
})

test('a prompt that the engine is asked to cut cannot be tokenized', async () => {
  const model = await load({})
  const body = { prompt: 'abc', truncate_prompt_tokens: 2 }
  expect(promptError(() => model.tokenize('/v1/completions', body)).code).toBe(
    'INFERA_ROUTER_NOT_TOKENIZABLE',
  )
  expect(model.tokenize('/v1/completions', { ...body, truncate_prompt_tokens: null }).length).toBe(4)
})

test('a prompt longer than promptCharsMax is refused, one as long is not', async () => {
  const model = await load({ 'chat_template.jinja': '{{ messages[0].content }}' }, { promptCharsMax: 1024 })
  const paths: [InferencePath, (text: string) => InferenceBody][] = [
    ['/v1/completions', (prompt) => ({ prompt, add_special_tokens: false })],
    ['/v1/chat/completions', (content) => ask(content)],
  ]
  for (const [path, body] of paths) {
    expect(model.tokenize(path, body('x'.repeat(1024))).length).toBe(1024)
    const error = promptError(() => model.tokenize(path, body('x'.repeat(1025))))
    expect(error.code).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
    expect(error.message).toContain('promptCharsMax')
  }
})

test('decode gives the text back, with or without special tokens, and leaves out ids that do not exist', async () => {
  const model = await load({})
  const ids = [256, ...bytes('hé🦄'), 257, 999]
  expect(model.decode(ids)).toBe('<s>hé🦄<|end|>')
  expect(model.decode(Uint32Array.from(ids), { skipSpecialTokens: true })).toBe('hé🦄')
  expect(model.decode([])).toBe('')
})

test('chat_template.jinja wins over tokenizer_config.json', async () => {
  const model = await load({
    'tokenizer_config.json': { chat_template: 'config' },
    'chat_template.jinja': 'file',
  })
  expect(model.renderChat(ask('x'))).toBe('file')
})

test('of named templates, tool_use serves requests with tools and default the others', async () => {
  const model = await withTemplate([
    { name: 'rag', template: 'rag' },
    { name: 'default', template: 'default' },
    { name: 'tool_use', template: 'tool_use' },
  ])
  const renders = [undefined, null, [], [{ type: 'function' }]].map((tools) =>
    model.renderChat({ ...ask('x'), tools }),
  )
  expect(renders).toEqual(['default', 'default', 'tool_use', 'tool_use'])
})

test('named templates without a default are served by the first', async () => {
  const model = await withTemplate([
    { name: 'b', template: 'first' },
    { name: 'a', template: 'second' },
  ])
  expect(model.renderChat(ask('x', { tools: [{}] }))).toBe('first')
})

// As transformers: only a tokenizer_config.json that lists its tokens speaks alone.
test.each([
  ['of special_tokens_map.json first', {}, "<s><e><p>False['<a>', '<b>']"],
  [
    'of tokenizer_config.json alone',
    { added_tokens_decoder: { 0: { content: '<s>' } } },
    "<s></s>False['<a>', '<b>']",
  ],
])('templates see the special tokens %s, as text or as { content }', async (_which, more, text) => {
  const model = await load({
    'special_tokens_map.json': { pad_token: '<p>', eos_token: '<e>' },
    'tokenizer_config.json': {
      bos_token: { content: '<s>', lstrip: false },
      eos_token: '</s>',
      unk_token: null,
      add_bos_token: true,
      additional_special_tokens: ['<a>', { content: '<b>' }],
      ...more,
    },
    'chat_template.jinja':
      '{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token is defined }}{{ additional_special_tokens }}',
  })
  expect(model.renderChat(ask('x'))).toBe(text)
})

test('templates see tools, documents, keywords and the generation prompt of the body', async () => {
  const model = await withTemplate(
    '{{ tools|tojson }}{{ documents|tojson }}{{ add_generation_prompt }}{{ reasoning_effort }}{{ extra }}',
  )
  expect(model.renderChat(ask('x'))).toBe('nullnullTrue')
  expect(
    model.renderChat({
      ...ask('x', { tools: [{ a: 1 }], documents: [{ title: 't' }], add_generation_prompt: false }),
      reasoning_effort: 'low',
      chat_template_kwargs: { extra: 5, reasoning_effort: 'high' },
    }),
  ).toBe('[{"a": 1}][{"title": "t"}]Falsehigh5')
})

test('a template that walks parts gets parts', async () => {
  const model = await withTemplate(
    '{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}',
  )
  const content = [
    { type: 'text', text: 'a' },
    { type: 'text', text: 'b' },
  ]
  expect(model.renderChat({ messages: [{ role: 'user', content }] })).toBe('<a><b>')
  expect(model.renderChat(ask('ab'))).toBe('<ab>')
})

test.each([
  ['a string', '{% for m in messages %}[{{ m.content }}]{% endfor %}', '[q][one, '],
  ['trimmed', '{% for m in messages %}[{{ m.content|trim }}]{% endfor %}', '[q][one,'],
  [
    'parts',
    '{% for m in messages %}[{% for p in m.content %}{{ p.text }}{% endfor %}]{% endfor %}',
    '[q][one, ',
  ],
])(
  'a continued message that the template takes as %s ends where its text ends',
  async (_name, template, expected) => {
    const model = await withTemplate(template)
    const messages = [
      { role: 'user', content: 'q' },
      { role: 'assistant', content: 'one, ' },
    ]
    const body = { messages, add_generation_prompt: false, continue_final_message: true }
    expect(model.renderChat(body)).toBe(expected)
  },
)

test.each<[string, InferenceBody]>([
  ['a continued message with a generation prompt', ask('x', { continue_final_message: true })],
  ['a template of its own', ask('x', { chat_template: '{{ 1 }}' })],
  ['keywords that are no object', ask('x', { chat_template_kwargs: [] })],
  ['keywords that replace the messages', ask('x', { chat_template_kwargs: { messages: [] } })],
  ['keywords that replace the template', ask('x', { chat_template_kwargs: { chat_template: 'x' } })],
  ['no messages', {}],
])('a chat request with %s cannot be tokenized', async (_name, body) => {
  const model = await withTemplate(plain)
  const error = promptError(() => model.renderChat(body))
  expect(error.code).toBe('INFERA_ROUTER_NOT_TOKENIZABLE')
})

test('a continued message that the template drops is a failure of the template', async () => {
  const model = await withTemplate('{{ messages[0].role }}')
  const body = ask('x', { add_generation_prompt: false, continue_final_message: true })
  expect(promptError(() => model.renderChat(body)).code).toBe('INFERA_ROUTER_TEMPLATE_FAILED')
})

test.each([
  ['cannot be parsed', '{% if %}'],
  ['uses what is not known', '{{ messages|frobnicate }}'],
  ['raises', "{{ raise_exception('only on Sundays') }}"],
  ['has no end', '{% for i in range(1000000000) %}{% endfor %}'],
])('a template that %s fails chat requests, not the model', async (_name, template) => {
  const model = await withTemplate(template)
  expect(promptError(() => model.renderChat(ask('x'))).code).toBe('INFERA_ROUTER_TEMPLATE_FAILED')
  expect(model.tokenize('/v1/completions', { prompt: 'a', add_special_tokens: false })).toEqual(bytes('a'))
})

test.each<[string, Readonly<Record<string, unknown>>, string]>([
  ['tokenizer.json is missing', { 'config.json': {} }, 'tokenizer.json'],
  ['tokenizer.json is cut off', { 'tokenizer.json': '{"model":' }, 'tokenizer.json'],
  ['tokenizer.json is a list', { 'tokenizer.json': [] }, 'tokenizer.json'],
  ['tokenizer.json is no tokenizer', { 'tokenizer.json': { model: {} } }, 'tokenizer.json'],
  [
    'tokenizer_config.json is cut off',
    { 'tokenizer.json': tinyTokenizer(), 'tokenizer_config.json': '{' },
    'tokenizer_config.json',
  ],
  [
    'the chat template is a number',
    { 'tokenizer.json': tinyTokenizer(), 'tokenizer_config.json': { chat_template: 3 } },
    'tokenizer_config.json',
  ],
])('where %s, the error names the file', async (_name, files, file) => {
  await using folder = await modelFolder(files)
  const error = await loadPromptModel(folder.path).catch((caught: unknown) => caught)
  expect(error).toBeInstanceOf(ModelFolderError)
  expect(String(error)).toContain(join(folder.path, file))
})

test('a folder that does not exist is named', async () => {
  await expect(loadPromptModel('/nowhere/at/all')).rejects.toThrow("'/nowhere/at/all")
})

test('options that do not exist or make no sense are refused', async () => {
  await using folder = await modelFolder({ 'tokenizer.json': tinyTokenizer() })
  const wrong = { promptCharMax: 5 } as LoadPromptModelOptions
  await expect(loadPromptModel(folder.path, wrong)).rejects.toThrow('promptCharMax')
  await expect(loadPromptModel(folder.path, { promptCharsMax: 1023 })).rejects.toThrow('promptCharsMax')
})

test('the digest of a file is that of its bytes, of a folder that of its tokenizer files', async () => {
  await using folder = await modelFolder({
    'tokenizer.json': '{"a":1}',
    'tokenizer_config.json': '{}',
    'model.safetensors': 'x',
  })
  expect(await digestTokenizer(join(folder.path, 'tokenizer.json'))).toBe('015abd7f5cc57a2d')
  expect(await digestTokenizer(folder.path)).toBe('93147c4edb5cab6d')
})

test.each(['Vocab.JSON', 'qwen.tiktoken', 'tokenization_x.py', 'chat.txt'])(
  'whether %s defines a tokenizer shows in the digest',
  async (name) => {
    await using bare = await modelFolder({ 'tokenizer.json': '{}' })
    await using more = await modelFolder({ 'tokenizer.json': '{}', [name]: 'x' })
    const isSame = (await digestTokenizer(bare.path)) === (await digestTokenizer(more.path))
    expect(isSame).toBe(name === 'chat.txt')
  },
)

test('the canary is the text of the fleet, without special tokens', async () => {
  const model: PromptModel = await load({})
  const hex =
    '48656c6c6f2c20776f726c64210ae4bda0e5a5bdefbc8ce4b896e7958cefbc813c7c696d5f73746172747c3e73797374656d0a3c7c656e646f66746578747c3e3c7c696d5f656e647c3ef09fa684'
  expect(model.tokenizerCanary).toEqual([...Buffer.from(hex, 'hex')])
})
