import { join } from 'node:path'
import { z } from 'zod'
import { InvalidRouterOptionsError, ModelFolderError, PromptError } from '../errors.js'
import { renderChat, templateFailed, templateSettings } from './chat-prompt.js'
import { ChatTemplate } from './chat-template.js'
import { type ModelFolder, readModelFolder } from './model-folder.js'
import type { InferenceBody, InferencePath, PromptModel } from './prompt-model.js'
import { PromptTokenizer } from './tokenizer.js'
import { canaryText, digestTokenizer } from './tokenizer-digest.js'

const Options = z.strictObject({
  promptCharsMax: z
    .int()
    .min(1024) // the canary must fit
    // Tokenizing runs on the event loop. Ordinary text is quick, but one unbroken word costs about 11 s per million
    // characters, so this bounds how long a single request can hold up all others.
    .default(4 * 1024 * 1024),
  now: z.custom<() => Date>((value) => typeof value === 'function').default(() => () => new Date()),
})

export interface LoadPromptModelOptions {
  /** Longest prompt that is tokenized, in UTF-16 code units, >= 1024; default 4 Mi. Longer ones throw PromptError. */
  readonly promptCharsMax?: number
  /** Time that a template's `strftime_now` prints, in local time; default the system clock. */
  readonly now?: () => Date
}

/**
 * Loads the tokenizer and chat template of a model folder: tokenizer.json, and where present tokenizer_config.json,
 * special_tokens_map.json and chat_template.jinja. A model without a usable template still serves completions.
 * @param folder path of a folder as models are published
 * @throws ModelFolderError naming the file and what it must hold; InvalidRouterOptionsError naming the option
 */
export async function loadPromptModel(
  folder: string,
  options: LoadPromptModelOptions = {},
): Promise<PromptModel> {
  const { promptCharsMax, now } = checkOptions(options)
  const [contents, tokenizerDigest] = await Promise.all([readModelFolder(folder), digestTokenizer(folder)])
  const eosToken = contents.specialTokens.get('eos_token')
  let tokenizer: PromptTokenizer
  try {
    tokenizer = new PromptTokenizer(contents.tokenizer, {
      promptCharsMax,
      eosToken: typeof eosToken === 'string' ? eosToken : undefined,
    })
  } catch (cause) {
    throw new ModelFolderError(
      `'${join(folder, 'tokenizer.json')}' is not a tokenizer that can be used here`,
      {
        cause,
      },
    )
  }
  const templates = new Templates(contents, { outputCharsMax: promptCharsMax, now })
  return new FolderPromptModel({ folder, tokenizerDigest, tokenizer, templates, contents })
}

function checkOptions(options: LoadPromptModelOptions): z.output<typeof Options> {
  const result = Options.safeParse(options)
  if (result.success) return result.data
  const issue = result.error.issues[0]
  const where = issue?.path.length ? `option '${issue.path.join('.')}'` : 'options'
  throw new InvalidRouterOptionsError(`${where} of loadPromptModel: ${issue?.message ?? 'unusable'}`, {
    cause: result.error,
  })
}

/** The templates of a model, each parsed once. One that does not parse fails its renders, not the model. */
class Templates {
  readonly #parsed = new Map<string, ChatTemplate | PromptError>()

  constructor({ templates }: ModelFolder, options: { outputCharsMax: number; now: () => Date }) {
    for (const [name, source] of templates) {
      try {
        this.#parsed.set(name, new ChatTemplate(source, options))
      } catch (cause) {
        const reason = cause instanceof Error ? cause.message : 'no reason'
        this.#parsed.set(
          name,
          templateFailed(`chat template '${name}' cannot be parsed: ${reason}`, { cause }),
        )
      }
    }
  }

  /** As transformers picks it: `tool_use` for a request with tools, else `default`, else the first. */
  pick(hasTools: boolean): ChatTemplate {
    const [first] = this.#parsed.values()
    const found =
      (hasTools ? this.#parsed.get('tool_use') : undefined) ?? this.#parsed.get('default') ?? first
    if (found instanceof ChatTemplate) return found
    throw (
      found ??
      templateFailed(
        'the model folder has no chat template; add chat_template.jinja or a chat_template in tokenizer_config.json',
      )
    )
  }
}

class FolderPromptModel implements PromptModel {
  readonly folder: string
  readonly tokenizerDigest: string
  readonly tokenizerCanary: readonly number[]
  readonly #tokenizer: PromptTokenizer
  readonly #templates: Templates
  readonly #specialTokens: ModelFolder['specialTokens']

  constructor(parts: {
    folder: string
    tokenizerDigest: string
    tokenizer: PromptTokenizer
    templates: Templates
    contents: ModelFolder
  }) {
    this.folder = parts.folder
    this.tokenizerDigest = parts.tokenizerDigest
    this.tokenizerCanary = Object.freeze(Array.from(parts.tokenizer.encode(canaryText)))
    this.#tokenizer = parts.tokenizer
    this.#templates = parts.templates
    this.#specialTokens = parts.contents.specialTokens
  }

  renderChat(body: InferenceBody): string {
    const settings = templateSettings(body)
    const template = this.#templates.pick(settings.tools !== undefined && settings.tools !== null)
    return renderChat(template, body, { settings, specialTokens: this.#specialTokens })
  }

  encode(text: string, options?: { addSpecialTokens?: boolean }): Uint32Array {
    return this.#tokenizer.encode(text, options)
  }

  decode(ids: ArrayLike<number>, options?: { skipSpecialTokens?: boolean }): string {
    return this.#tokenizer.decode(ids, options)
  }

  tokenize(path: InferencePath, body: InferenceBody): Uint32Array {
    if (body.truncate_prompt_tokens !== undefined && body.truncate_prompt_tokens !== null)
      throw notTokenizable(
        'truncate_prompt_tokens lets the engine cut the prompt; where it cuts is its own matter',
      )
    return path === '/v1/chat/completions' ? this.#tokenizeChat(body) : this.#tokenizeCompletion(body)
  }

  #tokenizeChat(body: InferenceBody): Uint32Array {
    // Templates print the special tokens that belong there; only a request that asks for more gets them.
    return this.encode(this.renderChat(body), { addSpecialTokens: body.add_special_tokens === true })
  }

  #tokenizeCompletion(body: InferenceBody): Uint32Array {
    const { prompt } = body
    if (typeof prompt === 'string')
      return this.encode(prompt, { addSpecialTokens: body.add_special_tokens !== false })
    if (!Array.isArray(prompt)) throw notTokenizable('prompt must be a string or a list of token ids')
    return promptTokens(prompt)
  }
}

/** A prompt that came as token ids, checked. */
function promptTokens(prompt: readonly unknown[]): Uint32Array {
  if (prompt.length === 0) throw notTokenizable('prompt is an empty list; it must hold at least one token id')
  if (typeof prompt[0] !== 'number')
    throw notTokenizable('prompt is a batch; only a single prompt is tokenized, send one request for each')
  const tokens = new Uint32Array(prompt.length)
  for (const [index, token] of prompt.entries()) {
    if (typeof token !== 'number' || !Number.isInteger(token) || token < 0 || token > 0xffff_ffff)
      throw notTokenizable(`prompt[${index}] must be a token id, an integer from 0 to 4294967295`)
    tokens[index] = token
  }
  return tokens
}

function notTokenizable(message: string): PromptError {
  return new PromptError('INFERA_ROUTER_NOT_TOKENIZABLE', message)
}
