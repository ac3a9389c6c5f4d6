import { readFileSync, statSync } from 'node:fs'
import { Command, InvalidArgumentError, type Option } from 'commander'
import { parseDocument } from 'yaml'
import { ServerError } from '../errors.js'

const fileBytesMax = 1024 * 1024

/**
 * A command whose flags may also come from variables and from the file of `--config`. The flag wins, then the variable, then
 * the file, then the default.
 */
export class SettingsCommand extends Command {
  /** What the names of variables begin with where a flag has none of its own. */
  readonly #prefix: string

  constructor(name?: string, prefix = 'INFERA_') {
    super(name)
    this.#prefix = prefix
    this.option('--config <file>', 'YAML or JSON file that gives flags by their names')
    this.hook('preAction', () => {
      const { config: path } = this.opts<{ config?: string }>()
      if (path !== undefined) applySettingsFile(this, path)
    })
  }

  /** Also called by `option()`. The variable has to be known here: commander asks for it only once. */
  override addOption(option: Option): this {
    if (option.envVar === undefined && option.long !== '--json')
      option.env(`${this.#prefix}${option.name().toUpperCase().replaceAll('-', '_')}`)
    return super.addOption(option)
  }
}

/**
 * Takes from a YAML or JSON file what neither the command line nor the environment says. Its keys are the flags of the command
 * without their dashes, its values what the flags take; a flag that may be repeated takes a list.
 * @throws ServerError `INFERA_SERVER_OPTIONS` naming the file, the key and what it wants; nothing is taken then
 */
function applySettingsFile(command: Command, path: string): void {
  const wrong = (message: string, cause?: unknown) =>
    new ServerError('INFERA_SERVER_OPTIONS', `--config '${path}': ${message}`, { cause })
  const options = new Map(settableOptions(command).map((option) => [keyOf(option), option]))
  const taken: [string, unknown][] = []
  for (const [key, value] of Object.entries(read(path, wrong))) {
    const option = options.get(key)
    if (option === undefined) {
      throw wrong(
        `there is no setting '${key}' for infera ${command.name()}; these are: ${[...options.keys()].sort().join(', ')}`,
      )
    }
    const attribute = option.attributeName()
    const source = command.getOptionValueSource(attribute)
    try {
      const parsed = parsedValue(option, value)
      if (source === undefined || source === 'default') taken.push([attribute, parsed])
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error
      throw wrong(`${key}: ${error.message}`, error)
    }
  }
  for (const [attribute, value] of taken) command.setOptionValueWithSource(attribute, value, 'config')
}

/** The flags of a command that a file may set: those that say what it does, not how it is called. */
function settableOptions(command: Command): readonly Option[] {
  return command.options.filter((option) => !['--config', '--json', '--version'].includes(option.long ?? ''))
}

function keyOf(option: Option): string {
  return option.long?.slice(2) ?? option.flags
}

function read(
  path: string,
  wrong: (message: string, cause?: unknown) => ServerError,
): Readonly<Record<string, unknown>> {
  let text: string
  try {
    const { size } = statSync(path)
    if (size > fileBytesMax)
      throw wrong(`it has ${size} bytes; a file of settings has at most ${fileBytesMax}`)
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if (error instanceof ServerError) throw error
    const code = error instanceof Error && 'code' in error ? ` (${String(error.code)})` : ''
    throw wrong(`it cannot be read${code}`, error)
  }
  const document = parseDocument(text, { prettyErrors: true, uniqueKeys: true })
  const [fault] = document.errors
  // The first line says what and where; the rest shows the text, which may hold a secret.
  if (fault !== undefined) throw wrong(`it is no YAML or JSON: ${fault.message.split('\n', 1)[0]}`)
  let content: unknown
  try {
    content = document.toJS()
  } catch (error) {
    throw wrong('its aliases multiply beyond all bounds', error)
  }
  if (content === null) return {}
  if (typeof content !== 'object' || Array.isArray(content)) throw wrong('it must be a map of settings')
  return content as Record<string, unknown>
}

/** As if it stood on the command line, where all is text. @throws InvalidArgumentError */
function parsedValue(option: Option, value: unknown): unknown {
  const isList = Array.isArray(option.defaultValue)
  if (!isList) return parsedText(option, value, undefined)
  let list: unknown
  for (const each of Array.isArray(value) ? value : [value]) list = parsedText(option, each, list)
  return list ?? []
}

function parsedText(option: Option, value: unknown, previous: unknown): unknown {
  if (!option.required && !option.optional) {
    // A switch is on or off; one that takes something away, as `no-strict-fleet`, is on in the file when that is what it says.
    if (typeof value !== 'boolean') throw new InvalidArgumentError('give true or false.')
    return option.negate ? !value : value
  }
  if (typeof value === 'boolean' && option.optional) return value
  if (typeof value !== 'string' && typeof value !== 'number') {
    const what =
      value === null
        ? 'nothing'
        : Array.isArray(value)
          ? 'a list'
          : typeof value === 'object'
            ? 'a map'
            : 'a boolean'
    throw new InvalidArgumentError(`${what} is no value for it; give text or a number.`)
  }
  const text = String(value)
  return option.parseArg ? option.parseArg(text, previous as never) : text
}
