// A look at the top level of an object's JSON text, for changes that leave every other byte as it is: writing a body anew
// would change numbers that a JavaScript number cannot hold.
import { isBlank, stringEnd } from '../prompt/json/json-scan.js'

/** Where a member of an object stands in its text, positions in UTF-16 code units. */
export interface JsonMember {
  readonly key: string
  readonly start: number
  readonly valueStart: number
  /** Behind the value. */
  readonly end: number
}

/** @param json text of an object, known to be valid JSON */
export function* jsonMembers(json: string): Generator<JsonMember> {
  let at = json.indexOf('{') + 1
  for (;;) {
    const start = skipBlanks(json, at)
    if (json[start] === '}') return
    const keyEnd = stringEnd(json, start)
    const key = JSON.parse(json.slice(start, keyEnd)) as string
    const valueStart = skipBlanks(json, skipBlanks(json, keyEnd) + 1)
    const end = valueEnd(json, valueStart)
    yield { key, start, valueStart, end }
    const next = skipBlanks(json, end)
    if (json[next] !== ',') return
    at = next + 1
  }
}

function skipBlanks(json: string, from: number): number {
  let at = from
  while (isBlank(json.charCodeAt(at))) at += 1
  return at
}

function valueEnd(json: string, start: number): number {
  let depth = 0
  let at = start
  while (at < json.length) {
    const char = json[at] as string
    if (char === '"') {
      at = stringEnd(json, at)
      if (depth === 0) return at
      continue
    }
    if (depth === 0 && (char === ',' || char === '}' || isBlank(char.charCodeAt(0)))) return at
    if (char === '{' || char === '[') depth += 1
    else if (char === '}' || char === ']') depth -= 1
    at += 1
    if (depth === 0 && (char === '}' || char === ']')) return at
  }
  return at
}
