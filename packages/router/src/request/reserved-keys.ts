// Top-level keys that begin with `_infera_` speak between parts of a fleet. They are never taken from a client, and never
// reach an engine. They are cut out of the text, not dropped by writing the body anew: that would change numbers that a
// JavaScript number cannot hold, and every byte of a large body.

const prefix = '_infera_'

/** Whether a parsed body has keys that must not be passed on. */
export function hasReservedKeys(body: Readonly<Record<string, unknown>>): boolean {
  return Object.keys(body).some((key) => key.startsWith(prefix))
}

/** @param json text of an object, known to be valid JSON @returns the same text without its reserved members */
export function withoutReservedKeys(json: string): string {
  const kept: string[] = []
  let at = json.indexOf('{') + 1
  for (;;) {
    const start = skipBlanks(json, at)
    if (json[start] === '}') break
    const keyEnd = stringEnd(json, start)
    const key = JSON.parse(json.slice(start, keyEnd)) as string
    const colon = skipBlanks(json, keyEnd)
    const end = valueEnd(json, skipBlanks(json, colon + 1))
    if (!key.startsWith(prefix)) kept.push(json.slice(start, end))
    const next = skipBlanks(json, end)
    if (json[next] !== ',') break
    at = next + 1
  }
  return `{${kept.join(',')}}`
}

function skipBlanks(json: string, from: number): number {
  let at = from
  while (at < json.length && ' \t\r\n'.includes(json[at] as string)) at += 1
  return at
}

/** @param start position of the opening quote @returns the position after the closing one */
function stringEnd(json: string, start: number): number {
  let at = start + 1
  while (at < json.length && json[at] !== '"') at += json[at] === '\\' ? 2 : 1
  return at + 1
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
    if (depth === 0 && (char === ',' || char === '}')) return at
    if (char === '{' || char === '[') depth += 1
    else if (char === '}' || char === ']') depth -= 1
    at += 1
    if (depth === 0 && (char === '}' || char === ']')) return at
  }
  return at
}
