// The tokenizer digest and canary by which the members of a fleet find out whether they tokenize alike.
//
//   digest of a file    first 16 hex digits of SHA-256( content )
//   digest of a folder  first 16 hex digits of SHA-256( for each tokenizer file in byte order of name:
//                         name 00 content 00 00 )
import { createHash } from 'node:crypto'
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { ModelFolderError } from '../errors.js'

/** Text whose token ids, without special tokens, tell two tokenizers apart. The same in every fleet. */
export const canaryText = 'Hello, world!\n你好，世界！<|im_start|>system\n<|endoftext|><|im_end|>🦄'

const tokenizerFiles = new Set([
  'tokenizer.json',
  'tokenizer_config.json',
  'tokenizer.model',
  'tiktoken.model',
  'vocab.json',
  'vocab.txt',
  'merges.txt',
  'special_tokens_map.json',
  'added_tokens.json',
  'spiece.model',
  'sentencepiece.bpe.model',
])

function definesTokenizer(name: string): boolean {
  const lower = name.toLowerCase()
  return tokenizerFiles.has(lower) || lower.endsWith('.tiktoken') || /^tokeniz.*\.py$/s.test(lower)
}

/**
 * Digest of a tokenizer file, or of the files of a folder that define its tokenizer. Links are followed.
 * @returns 16 hex digits
 * @throws ModelFolderError when nothing there defines a tokenizer
 */
export async function digestTokenizer(path: string): Promise<string> {
  const hash = createHash('sha256')
  try {
    if ((await stat(path)).isFile())
      return hash
        .update(await readFile(path))
        .digest('hex')
        .slice(0, 16)
    const names = (await readdir(path)).filter(definesTokenizer)
    names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
    let fileCount = 0
    for (const name of names) {
      const file = join(path, name)
      if (!(await stat(file)).isFile()) continue
      hash
        .update(name)
        .update('\0')
        .update(await readFile(file))
        .update('\0\0')
      fileCount += 1
    }
    if (fileCount > 0) return hash.digest('hex').slice(0, 16)
  } catch (cause) {
    throw new ModelFolderError(`cannot read the tokenizer files of '${path}'`, { cause })
  }
  throw new ModelFolderError(`'${path}' holds no tokenizer file; give it at least a tokenizer.json`)
}
