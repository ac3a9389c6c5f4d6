import { z } from 'zod'
import { InvalidRouterOptionsError } from '../errors.js'
import type { ChatRenderer } from './chat-renderer.js'
import { DeepSeekV4Renderer, isDeepSeekV4 } from './encoders/deepseek-v4-renderer.js'
import { FolderPromptModel } from './folder-prompt-model.js'
import { type ModelFolder, readModelFolder } from './model-folder.js'
import { openTokenizer } from './open-tokenizer.js'
import type { PromptModel } from './prompt-model.js'
import { SegmentTokenizer } from './segments/segment-tokenizer.js'
import { TemplateRenderer } from './template-renderer.js'
import { digestTokenizer } from './tokenizer-digest.js'

const Options = z.strictObject({
  promptCharsMax: z
    .int()
    .min(1024) // the canary must fit
    // Tokenizing runs on the event loop. Ordinary text is quick, but one unbroken word costs about 11 s per million
    // characters, so this bounds how long a single request can hold up all others.
    .default(4 * 1024 * 1024),
  promptsMax: z.int().positive().default(256),
  segmentCacheBytes: z
    .int()
    .nonnegative()
    .default(64 * 1024 * 1024),
  chatEncoding: z.enum(['auto', 'dsv4']).default('auto'),
  now: z.custom<() => Date>((value) => typeof value === 'function').default(() => () => new Date()),
})

export interface LoadPromptModelOptions {
  /** Longest prompt that is tokenized, in UTF-16 code units, >= 1024; default 4 Mi. Longer ones throw PromptError. */
  readonly promptCharsMax?: number
  /** Most prompts in the batch of one completion request, > 0; default 256. Larger ones throw PromptError. */
  readonly promptsMax?: number
  /**
   * Most memory for the messages that were tokenized lately, whose tokens are looked up when they come again, bytes, >= 0;
   * default 64 Mi; 0: all are tokenized anew.
   */
  readonly segmentCacheBytes?: number
  /**
   * How chats become text: `dsv4` by DeepSeek-V4's native encoder, whatever the folder says; default `auto`: by it for
   * models whose first architecture in config.json is DeepSeek-V4, by their chat template for all others.
   */
  readonly chatEncoding?: 'auto' | 'dsv4'
  /** Time that a template's `strftime_now` prints, in local time; default the system clock. */
  readonly now?: () => Date
}

/**
 * Loads the tokenizer and chat template of a model folder: tiktoken.model or tokenizer.json, and where present
 * tokenizer_config.json, special_tokens_map.json, config.json and the chat templates: chat_template.jinja and
 * additional_chat_templates, else chat_template.json, else those of tokenizer_config.json. A model without a usable
 * template still serves completions.
 * @param folder path of a folder as models are published
 * @throws ModelFolderError naming the file and what it must hold; InvalidRouterOptionsError naming the option
 */
export async function loadPromptModel(
  folder: string,
  options: LoadPromptModelOptions = {},
): Promise<PromptModel> {
  const settings = checkOptions(options)
  const contents = await readModelFolder(folder) // first: its errors say more
  const tokenizerDigest = await digestTokenizer(folder)
  const { promptCharsMax, segmentCacheBytes: cacheBytes } = settings
  const opened = openTokenizer(contents, settings)
  const tokenizer = cacheBytes === 0 ? opened : new SegmentTokenizer(opened, { cacheBytes, promptCharsMax })
  const renderer = openRenderer(contents, settings)
  return new FolderPromptModel({
    folder,
    tokenizerDigest,
    tokenizer,
    renderer,
    promptsMax: settings.promptsMax,
  })
}

function openRenderer(contents: ModelFolder, settings: z.output<typeof Options>): ChatRenderer {
  if (settings.chatEncoding === 'dsv4' || isDeepSeekV4(contents.architecture))
    return new DeepSeekV4Renderer(contents.encoderSource)
  return new TemplateRenderer(contents, { outputCharsMax: settings.promptCharsMax, now: settings.now })
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
