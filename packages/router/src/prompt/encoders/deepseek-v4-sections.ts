// The long texts around tools and response formats. They are published with the model, as constants of its own encoder:
//
//   encoding/encoding_dsv4.py
//     TOOLS_TEMPLATE = """..."""                   with {tool_schemas} where the schemas go
//     response_format_template: str = ("...")      with {schema}
//
// The file is read as text for these two constants; nothing of it is run.

/** Writers of the two sections; undefined where the file does not tell. */
export interface Sections {
  /** @param schemas one JSON text a line */
  readonly tools: ((schemas: string) => string) | undefined
  readonly responseFormat: ((schema: string) => string) | undefined
}

/** Name of the file below the model folder that `sectionsOf` reads. */
export const sectionsFile = 'encoding/encoding_dsv4.py'

const constants: Readonly<Record<string, string>> = {
  dsml_token: '｜DSML｜',
  thinking_start_token: '<think>',
  thinking_end_token: '</think>',
  tc_block_name: 'tool_calls',
}

/** @param python text of encoding/encoding_dsv4.py */
export function sectionsOf(python: string): Sections {
  return {
    tools: writerOf(literalOf(python, 'TOOLS_TEMPLATE'), 'tool_schemas'),
    responseFormat: writerOf(literalOf(python, 'response_format_template'), 'schema'),
  }
}

/** The string that a name is bound to at the start of a line: one plain literal, in parentheses or not. */
function literalOf(python: string, name: string): string | undefined {
  const start = new RegExp(`^${name}(?:[ \\t]*:[ \\t]*str)?[ \\t]*=[ \\t]*(\\(\\s*)?`, 'm').exec(python)
  if (!start) return undefined
  const rest = python.slice(start.index + start[0].length)
  const literal = /^(?:"""((?:[^\\]|\\[\s\S])*?)"""|"((?:[^"\\\n]|\\.)*)")/.exec(rest)
  if (!literal) return undefined
  // What follows must end the expression: a second literal or an operator would add to the text.
  if (
    !(start[1] ? /^\s*\)[ \t]*(?:#.*)?(?:\n|$)/ : /^[ \t]*(?:#.*)?(?:\n|$)/).test(
      rest.slice(literal[0].length),
    )
  )
    return undefined
  return unescaped((literal[1] ?? literal[2] ?? '').replace(/\r\n?/g, '\n'))
}

const escapes: Readonly<Record<string, string>> = {
  n: '\n',
  t: '\t',
  '"': '"',
  "'": "'",
  '\\': '\\',
  '\n': '', // a line that goes on
}

/** @returns undefined where an escape is used that is not understood here */
function unescaped(body: string): string | undefined {
  let isKnown = true
  const text = body.replace(
    /\\(?:u([0-9a-fA-F]{4})|([\s\S]))/g,
    (_, hex: string | undefined, char: string) => {
      if (hex !== undefined) return String.fromCharCode(Number.parseInt(hex, 16))
      const meant = escapes[char]
      if (meant === undefined) isKnown = false
      return meant ?? ''
    },
  )
  return isKnown ? text : undefined
}

/** As Python's str.format() with names only. @returns undefined where the text wants a value that is not known here */
function writerOf(template: string | undefined, field: string): ((value: string) => string) | undefined {
  if (template === undefined) return undefined
  const tokens = template.match(/\{\{|\}\}|\{[^{}]*\}|[{}]|[^{}]+/g) ?? []
  const parts: (string | typeof slot)[] = []
  for (const token of tokens) {
    if (token === '{{' || token === '}}') parts.push(token.charAt(0))
    else if (token === `{${field}}`) parts.push(slot)
    else if (token.startsWith('{') || token === '}') {
      const name = token.slice(1, -1)
      if (!Object.hasOwn(constants, name)) return undefined
      parts.push(constants[name] as string)
    } else parts.push(token)
  }
  if (!parts.includes(slot)) return undefined
  return (value) => parts.map((part) => (part === slot ? value : part)).join('')
}

const slot = Symbol('slot')
