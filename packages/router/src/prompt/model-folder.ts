import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ModelFolderError } from '../errors.js'

/** A JSON object as a model folder holds it. */
export type JsonObject = Readonly<Record<string, unknown>>

/** Chat templates of a model: one source, or several by name. */
export type TemplateSources = ReadonlyMap<string, string>

/** What a model folder says about prompts, read but not yet interpreted. */
export interface ModelFolder {
  readonly tokenizer: JsonObject
  /** Jinja sources by name, in the order of the file; empty for a model without a chat template. */
  readonly templates: TemplateSources
  /** Special tokens by the name that templates use: `bos_token`, `eos_token`, ... */
  readonly specialTokens: ReadonlyMap<string, string | readonly string[]>
}

/**
 * Reads tokenizer.json (required), tokenizer_config.json, special_tokens_map.json and chat_template.jinja.
 * As in transformers, chat_template.jinja wins over the `chat_template` of tokenizer_config.json.
 * @throws ModelFolderError naming the file and what it must hold
 */
export async function readModelFolder(folder: string): Promise<ModelFolder> {
  const tokenizer = await readObject(folder, 'tokenizer.json')
  if (!tokenizer)
    throw new ModelFolderError(
      `'${join(folder, 'tokenizer.json')}' is missing; a model folder must hold the model's tokenizer.json`,
    )
  const config = (await readObject(folder, 'tokenizer_config.json')) ?? {}
  const specials = (await readObject(folder, 'special_tokens_map.json')) ?? {}
  const jinja = await readOptional(folder, 'chat_template.jinja')
  const templates =
    jinja === undefined ? templatesOf(folder, config.chat_template) : new Map([['default', jinja]])
  return { tokenizer, templates, specialTokens: specialTokensOf({ ...specials, ...config }) }
}

async function readOptional(folder: string, name: string): Promise<string | undefined> {
  try {
    return await readFile(join(folder, name), 'utf8')
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new ModelFolderError(`cannot read '${join(folder, name)}'`, { cause })
  }
}

async function readObject(folder: string, name: string): Promise<JsonObject | undefined> {
  const text = await readOptional(folder, name)
  if (text === undefined) return undefined
  const path = join(folder, name)
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch (cause) {
    throw new ModelFolderError(`'${path}' is not JSON; it must hold one JSON object`, { cause })
  }
  if (!isJsonObject(parsed)) throw new ModelFolderError(`'${path}' must hold one JSON object`)
  return parsed
}

function templatesOf(folder: string, chatTemplate: unknown): TemplateSources {
  if (chatTemplate === undefined || chatTemplate === null) return new Map()
  if (typeof chatTemplate === 'string') return new Map([['default', chatTemplate]])
  const templates = new Map<string, string>()
  for (const entry of Array.isArray(chatTemplate) ? chatTemplate : []) {
    if (!isJsonObject(entry)) continue
    if (typeof entry.name === 'string' && typeof entry.template === 'string')
      templates.set(entry.name, entry.template)
  }
  if (templates.size === 0)
    throw new ModelFolderError(
      `chat_template of '${join(folder, 'tokenizer_config.json')}' must be a string or a list of { name, template }`,
    )
  return templates
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

function tokenContent(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  return isJsonObject(value) && typeof value.content === 'string' ? value.content : undefined
}

/** Whether a parsed JSON value is an object: not null, not a list. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
