import type { PromptError } from '../errors.js'
import { renderChat, templateFailed, templateSettings } from './chat-prompt.js'
import type { ChatRenderer, RenderedChat } from './chat-renderer.js'
import { ChatTemplate } from './chat-template.js'
import type { ModelFolder } from './model-folder.js'
import type { InferenceBody } from './prompt-model.js'

/** The chat templates of a model, each parsed once. One that does not parse fails its renders, not the model. */
export class TemplateRenderer implements ChatRenderer {
  readonly #parsed = new Map<string, ChatTemplate | PromptError>()
  readonly #specialTokens: ModelFolder['specialTokens']

  /**
   * @param options.outputCharsMax longest text that a repetition in a template may make, in UTF-16 code units
   * @param options.now what `strftime_now` prints
   */
  constructor(
    { templates, specialTokens }: Pick<ModelFolder, 'templates' | 'specialTokens'>,
    options: { outputCharsMax: number; now: () => Date },
  ) {
    this.#specialTokens = specialTokens
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

  /** Templates print the special tokens that belong there, so none are added. */
  render(body: InferenceBody): RenderedChat {
    const settings = templateSettings(body)
    const template = this.#pick(settings.tools !== undefined && settings.tools !== null)
    const text = renderChat(template, body, { settings, specialTokens: this.#specialTokens })
    return { text, addSpecialTokens: false }
  }

  /** As transformers picks it: `tool_use` for a request with tools, else `default`, else the first. */
  #pick(hasTools: boolean): ChatTemplate {
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
