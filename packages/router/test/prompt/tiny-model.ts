import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A byte-level BPE tokenizer without merges: one token for each byte, `<s>` before each text, `<|end|>` special. */
export function tinyTokenizer(): Record<string, unknown> {
  const printable = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173)
  let moved = 256
  const vocab: Record<string, number> = {}
  for (let byte = 0; byte < 256; byte++) vocab[String.fromCharCode(printable(byte) ? byte : moved++)] = byte
  const special = (id: number, content: string) => ({ id, content, special: true, normalized: false })
  return {
    version: '1.0',
    added_tokens: [special(256, '<s>'), special(257, '<|end|>')],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [],
      special_tokens: { '<s>': { id: '<s>', ids: [256], tokens: ['<s>'] } },
    },
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab, merges: [] },
  }
}

/** A temporary folder of files; objects are written as JSON. Disposing it removes it. */
export async function modelFolder(
  files: Readonly<Record<string, unknown>>,
): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'infera-model-'))
  for (const [name, content] of Object.entries(files))
    await writeFile(join(path, name), typeof content === 'string' ? content : JSON.stringify(content))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}
