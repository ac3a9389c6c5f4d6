import { join } from 'node:path'
import { ModelFolderError } from '../errors.js'
import { JsonTokenizer } from './json-tokenizer.js'
import { isJsonObject, type JsonObject } from './model-files.js'
import { type ModelFolder, tokenContent } from './model-folder.js'
import { parseRankTable } from './tiktoken/rank-table.js'
import { type SpecialToken, TiktokenTokenizer } from './tiktoken/tiktoken-tokenizer.js'
import type { Tokenizer } from './tokenizer.js'

/**
 * The tokenizer of a model folder: its tiktoken.model, else its tokenizer.json.
 * @param contents as `readModelFolder` gives them
 * @param options.promptCharsMax longest text that is encoded, in UTF-16 code units, > 0
 * @throws ModelFolderError naming the file that cannot be used
 */
export function openTokenizer(contents: ModelFolder, options: { promptCharsMax: number }): Tokenizer {
  const { promptCharsMax } = options
  return contents.tiktoken === undefined
    ? openJson(contents, promptCharsMax)
    : openTiktoken(contents, contents.tiktoken, promptCharsMax)
}

function openJson({ folder, tokenizer, specialTokens }: ModelFolder, promptCharsMax: number): Tokenizer {
  const eosToken = specialTokens.get('eos_token')
  try {
    return new JsonTokenizer(tokenizer ?? {}, {
      promptCharsMax,
      eosToken: typeof eosToken === 'string' ? eosToken : undefined,
    })
  } catch (cause) {
    throw new ModelFolderError(
      `'${join(folder, 'tokenizer.json')}' is not a tokenizer that can be used here`,
      { cause },
    )
  }
}

/** Ids behind the ranks that are special tokens, whether the model names them or not. */
const specialCount = 256

function openTiktoken(
  { folder, tokenizerConfig }: ModelFolder,
  ranks: string,
  promptCharsMax: number,
): Tokenizer {
  const table = parseRankTable(ranks, join(folder, 'tiktoken.model'))
  const named = tokenizerConfig.added_tokens_decoder ?? {}
  const path = join(folder, 'tokenizer_config.json')
  if (!isJsonObject(named))
    throw new ModelFolderError(`added_tokens_decoder of '${path}' must be an object of tokens by id`)
  const base = table.bytesOf.length
  const specials = Array.from({ length: specialCount }, (_, index) => specialToken(named, base + index, path))
  return new TiktokenTokenizer(table, specials, { promptCharsMax })
}

function specialToken(named: JsonObject, id: number, path: string): SpecialToken {
  const entry = named[String(id)]
  if (entry === undefined) return { id, content: `<|reserved_token_${id}|>`, isSkipped: true }
  const content = tokenContent(entry)
  if (content === undefined || content === '')
    throw new ModelFolderError(
      `added_tokens_decoder of '${path}': token ${id} must have a content that is not empty`,
    )
  return { id, content, isSkipped: !isJsonObject(entry) || entry.special !== false }
}
