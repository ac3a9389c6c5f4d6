import type { ContentFormat } from './chat-messages.js'
import { contentFormatOf } from './jinja/content-format.js'
import { PythonInterpreter } from './jinja/interpreter.js'
import { Environment, type Node, parse } from './jinja/library.js'
import { markOutputs } from './jinja/nodes.js'
import { str } from './jinja/python-text.js'
import { strftime } from './jinja/strftime.js'
import { callable, fromJson, list, none, number, numeric, text } from './jinja/values.js'

/** Jinja2's sandbox has the same bound. */
const rangeItemsMax = 100_000

/** A template said no to the messages. Its words are shown only where they cannot quote the prompt. */
export class RaisedByTemplate extends Error {
  override readonly name = 'RaisedByTemplate'
}

/**
 * A chat template under transformers' settings: trim_blocks, lstrip_blocks, loop controls, `tojson` as json.dumps()
 * with ensure_ascii false, `raise_exception`, `strftime_now`. Parsed once; renders leave nothing behind.
 */
export class ChatTemplate {
  readonly contentFormat: ContentFormat
  readonly #source: string
  readonly #program: Node
  readonly #outputCharsMax: number
  readonly #now: () => Date

  /**
   * @param source Jinja source
   * @param options.outputCharsMax longest text that a repetition in the template may make, in UTF-16 code units
   * @param options.now what `strftime_now` prints
   * @throws SyntaxError or Error of the parser
   */
  constructor(source: string, options: { outputCharsMax: number; now: () => Date }) {
    this.#source = source
    this.#program = parse(source.replace(/\r\n?/g, '\n')) // Jinja2 reads every newline as \n
    markOutputs(this.#program)
    this.contentFormat = contentFormatOf(this.#program)
    this.#outputCharsMax = options.outputCharsMax
    this.#now = options.now
  }

  /**
   * @param variables by name, as parsed from JSON; null is Python's None, a missing name is undefined
   * @throws RaisedByTemplate when the template calls raise_exception; Error when it cannot be rendered
   */
  render(variables: ReadonlyMap<string, unknown>): string {
    const globals = new Environment()
    globals.setVariable('range', range)
    globals.setVariable(
      'raise_exception',
      callable(([message]) => this.#raise(str(message ?? none))),
    )
    globals.setVariable(
      'strftime_now',
      callable(([format]) => text(strftime(this.#now(), str(format ?? none)))),
    )
    for (const [name, value] of variables) globals.setVariable(name, fromJson(value))
    // Last, because a variable must not hide a constant: Jinja2 reads these names as such.
    for (const [name, value] of constants) globals.setVariable(name, value)
    const interpreter = new PythonInterpreter(globals, { outputCharsMax: this.#outputCharsMax })
    return str(interpreter.run(this.#program))
  }

  #raise(words: string): never {
    // Words that stand in the source are the author's. Others are computed, and errors end up in logs.
    const isFixed = this.#source.includes(words)
    throw new RaisedByTemplate(isFixed ? words : 'raised an exception with computed words')
  }
}

const constants = [
  ['true', fromJson(true)],
  ['True', fromJson(true)],
  ['false', fromJson(false)],
  ['False', fromJson(false)],
  ['none', none],
  ['None', none],
] as const

const range = callable((args) => {
  const numbers = args.map((arg) => numeric(arg) ?? Number.NaN)
  const [start = 0, stop = 0, step = 1] = numbers.length === 1 ? [0, ...numbers] : numbers
  const count = Math.max(0, Math.ceil((stop - start) / step))
  if (!Number.isSafeInteger(count))
    throw new Error('range() takes one to three integers, and a step that is not 0')
  if (count > rangeItemsMax) throw new Error(`range() of ${count} items; the most is ${rangeItemsMax}`)
  return list(Array.from({ length: count }, (_, index) => number(start + index * step)))
})
