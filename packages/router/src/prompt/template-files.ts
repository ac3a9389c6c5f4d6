// Where a model folder keeps its chat templates. As in transformers, and vLLM for the last:
//
//   chat_template.jinja                     the template `default`
//   additional_chat_templates/<name>.jinja  the template <name>
//   tokenizer_config.json                   `chat_template`: a source, or a list of { name, template }; only where there
//                                           is none of the above
//   chat_template.json                      `chat_template`: of a processor; comes before tokenizer_config.json, but not
//                                           for requests with tools
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { ModelFolderError } from '../errors.js'
import { isJsonObject, readObject, readOptional } from './model-files.js'

/** Chat templates of a model: one source, or several by name. */
export type TemplateSources = ReadonlyMap<string, string>

const namedFolder = 'additional_chat_templates'
const namedMax = 64

/**
 * @param configured `chat_template` of tokenizer_config.json
 * @throws ModelFolderError naming the file and what it must hold
 */
export async function readTemplates(folder: string, configured: unknown): Promise<TemplateSources> {
  const files = await readFiles(folder)
  if (files.size > 0) return files
  const ofConfig = templatesOf(configured, join(folder, 'tokenizer_config.json'))
  const processor = await readObject(folder, 'chat_template.json')
  const ofProcessor = templatesOf(processor?.chat_template, join(folder, 'chat_template.json'))
  if (ofProcessor.size === 0) return ofConfig
  const forTools = ofConfig.get('tool_use') ?? ofConfig.get('default')
  return new Map([...(forTools === undefined ? [] : ([['tool_use', forTools]] as const)), ...ofProcessor])
}

async function readFiles(folder: string): Promise<TemplateSources> {
  const templates = new Map<string, string>()
  const main = await readOptional(folder, 'chat_template.jinja')
  if (main !== undefined) templates.set('default', main)
  for (const file of await namedFiles(folder)) {
    const source = await readOptional(folder, join(namedFolder, file))
    if (source !== undefined) templates.set(file.slice(0, -'.jinja'.length), source)
  }
  return templates
}

async function namedFiles(folder: string): Promise<readonly string[]> {
  const path = join(folder, namedFolder)
  let names: string[]
  try {
    names = await readdir(path)
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return []
    throw new ModelFolderError(`cannot read '${path}'`, { cause })
  }
  const files = names.filter((name) => name.endsWith('.jinja')).sort()
  if (files.length > namedMax)
    throw new ModelFolderError(`'${path}' holds ${files.length} templates; the most is ${namedMax}`)
  return files
}

function templatesOf(chatTemplate: unknown, file: string): TemplateSources {
  if (chatTemplate === undefined || chatTemplate === null) return new Map()
  if (typeof chatTemplate === 'string') return new Map([['default', chatTemplate]])
  const templates = new Map<string, string>()
  for (const entry of Array.isArray(chatTemplate) ? chatTemplate : []) {
    if (!isJsonObject(entry)) continue
    if (typeof entry.name === 'string' && typeof entry.template === 'string')
      templates.set(entry.name, entry.template)
  }
  if (templates.size === 0)
    throw new ModelFolderError(`chat_template of '${file}' must be a string or a list of { name, template }`)
  return templates
}
