import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { ModelFolderError } from '../errors.js'
import { sectionsFile } from './encoders/deepseek-v4-sections.js'
import { isJsonObject, type JsonObject, readObject, readOptional } from './model-files.js'
import { readTemplates, type TemplateSources } from './template-files.js'

/** What a model folder says about prompts, read but not yet interpreted. */
export interface ModelFolder {
  /** Where it was read from, as given. */
  readonly folder: string
  /** Content of tokenizer.json; undefined for a model that has a tiktoken.model, which comes before it. */
  readonly tokenizer: JsonObject | undefined
  /** Text of tiktoken.model. */
  readonly tiktoken: string | undefined
  /** Content of tokenizer_config.json; empty where there is none. */
  readonly tokenizerConfig: JsonObject
  /** Jinja sources by name, in the order of the file; empty for a model without a chat template. */
  readonly templates: TemplateSources
  /** Special tokens by the name that templates use: `bos_token`, `eos_token`, ... */
  readonly specialTokens: ReadonlyMap<string, string | readonly string[]>
  /** The first of config.json's `architectures`. */
  readonly architecture: string | undefined
  /** Text of encoding/encoding_dsv4.py, which DeepSeek-V4 models publish. */
  readonly encoderSource: string | undefined
}

/**
 * Reads the files of a model folder that prompts depend on: tiktoken.model, or else tokenizer.json, one of which it must
 * have; and where present tokenizer_config.json, special_tokens_map.json, the chat templates, config.json and
 * encoding/encoding_dsv4.py.
 * @throws ModelFolderError naming the file and what it must hold
 */
export async function readModelFolder(folder: string): Promise<ModelFolder> {
  const tiktoken = await readOptional(folder, 'tiktoken.model', tiktokenBytesMax)
  const tokenizer = tiktoken === undefined ? await readObject(folder, 'tokenizer.json') : undefined
  if (tiktoken === undefined && tokenizer === undefined)
    throw new ModelFolderError(
      `'${join(folder, 'tokenizer.json')}' is missing${await otherTokenizer(folder)}; a model folder must hold the model's tokenizer.json or tiktoken.model`,
    )
  const config = (await readObject(folder, 'tokenizer_config.json')) ?? {}
  const specials = await readObject(folder, 'special_tokens_map.json')
  return {
    folder,
    tokenizer,
    tiktoken,
    tokenizerConfig: config,
    templates: await readTemplates(folder, config.chat_template),
    specialTokens: specialTokensOf(specialSettings(config, specials)),
    architecture: await readArchitecture(folder),
    encoderSource: await readOptional(folder, sectionsFile),
  }
}

/** Rank tables of 2^18 tokens take 5 MB. */
const tiktokenBytesMax = 256 * 1024 * 1024

/** Other files of ranks are named, because their patterns differ and a wrong one gives tokens that look right. */
async function otherTokenizer(folder: string): Promise<string> {
  const names = await readdir(folder).catch(() => []) // what is missing is said already
  const other = names.find((name) => name.endsWith('.tiktoken'))
  return other === undefined ? '' : `, and how '${other}' takes texts apart is not known here`
}

/** A config.json that says nothing of architectures, or is no JSON, is no hindrance: prompts need it for one family only. */
async function readArchitecture(folder: string): Promise<string | undefined> {
  const text = await readOptional(folder, 'config.json')
  if (text === undefined) return undefined
  let config: unknown
  try {
    config = JSON.parse(text.replace(/^\ufeff/, ''))
  } catch {
    return undefined // the engine would not start on it, so its families do not matter
  }
  const [first] = isJsonObject(config) && Array.isArray(config.architectures) ? config.architectures : []
  return typeof first === 'string' ? first : undefined
}

/** As transformers: a tokenizer_config.json that lists its tokens speaks alone, else special_tokens_map.json comes first. */
function specialSettings(config: JsonObject, specials: JsonObject | undefined): JsonObject {
  return config.added_tokens_decoder === undefined ? { ...config, ...specials } : config
}

/** `<name>_token` entries that are a string or `{ content }`, and lists of either. */
function specialTokensOf(config: JsonObject): ReadonlyMap<string, string | readonly string[]> {
  const specials = new Map<string, string | readonly string[]>()
  for (const [name, value] of Object.entries(config)) {
    if (name.endsWith('_token')) {
      const content = tokenContent(value)
      if (content !== undefined) specials.set(name, content)
    } else if (name.endsWith('_special_tokens') && Array.isArray(value)) {
      specials.set(
        name,
        value.map(tokenContent).filter((content) => content !== undefined),
      )
    }
  }
  return specials
}

/** The text of a token that is written as a string or as `{ content }`. */
export function tokenContent(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  return isJsonObject(value) && typeof value.content === 'string' ? value.content : undefined
}
