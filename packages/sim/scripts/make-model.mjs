// Makes the model folder that simulated workers bring along: `node --import tsx scripts/make-model.mjs` writes ../model.
// A test holds that the committed files are what this script makes.
import { mkdirSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { commonWords } from '../src/content/words.ts'

const specialTokens = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']

/** The printable character that stands for a byte in a byte-level vocabulary (the map that GPT-2 introduced). */
function byteCharacters() {
  const printable = (byte) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff)
  let moved = 0
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCodePoint(printable(byte) ? byte : 0x100 + moved++),
  )
}

/**
 * Every merge adds one letter at the right end of a word's beginning, and only beginnings that no inner part of a word can
 * have (a space or a capital letter) are ever merged. So a listed word always becomes its one token, and text made of
 * these tokens is tokenized back to exactly them. Spaced forms come first: in ' The' the space has to win over 'Th'.
 */
function growMerges(space) {
  const merges = []
  const grown = new Set()
  const grow = (form) => {
    for (let length = 2; length <= form.length; length++) {
      const token = form.slice(0, length)
      if (grown.has(token)) continue
      grown.add(token)
      merges.push([token.slice(0, -1), token.slice(-1)])
    }
  }
  const capital = (word) => word[0].toUpperCase() + word.slice(1)
  for (const word of commonWords) grow(space + word)
  for (const word of commonWords) grow(space + capital(word))
  for (const word of commonWords) grow(capital(word))
  return { merges, tokens: [...grown] }
}

const chatTemplate = `{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages and messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'Functions that may be called, one JSON object per line:\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson + '\\n' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if not (tools and loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- if message.content is string %}
            {{- message.content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n' + call.function | tojson }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}`

export function makeModel() {
  const bytes = byteCharacters()
  const { merges, tokens } = growMerges(bytes[0x20])
  const vocabulary = [...bytes, ...tokens]
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: specialTokens.map((content, index) => ({
      id: vocabulary.length + index,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
      merges: merges.map((pair) => pair.join(' ')),
    },
  }
  const config = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    add_bos_token: false,
    add_prefix_space: false,
    bos_token: null,
    eos_token: '<|im_end|>',
    pad_token: '<|endoftext|>',
    unk_token: null,
    clean_up_tokenization_spaces: false,
    model_max_length: 131072,
    chat_template: chatTemplate,
  }
  const json = (value) => `${JSON.stringify(value, null, 1)}\n`
  return new Map([
    ['tokenizer.json', json(tokenizer)],
    ['tokenizer_config.json', json(config)],
  ])
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = new URL('../model/', import.meta.url)
  mkdirSync(folder, { recursive: true })
  for (const [name, content] of makeModel()) writeFileSync(new URL(name, folder), content)
}
