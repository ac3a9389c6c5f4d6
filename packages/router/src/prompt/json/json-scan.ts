// A look at valid JSON text that tells whether JSON.parse would lose something that Python keeps. Strings, which are
// most of a body, are skipped by `indexOf`.

/** What a look at a JSON text found. */
export interface JsonScan {
  /**
   * Whether JSON.parse loses nothing: no whole float, no integer beyond 2^53, no `-0`, no key that JavaScript would
   * move. A text that loses nothing may be taken for one that does, never the other way round.
   */
  readonly isLossless: boolean
  /** Levels of lists and objects; 0 for a text that is neither. */
  readonly depth: number
}

const quote = 0x22
const backslash = 0x5c
const minus = 0x2d
const isDigit = (code: number): boolean => code >= 0x30 && code <= 0x39

/** @param text valid JSON; for any other text the answer means nothing */
export function scanJson(text: string): JsonScan {
  let isLossless = true
  let depth = 0
  let depthMax = 0
  let at = 0
  while (at < text.length) {
    const code = text.charCodeAt(at)
    if (code === quote) {
      const end = stringEnd(text, at)
      const first = text.charCodeAt(at + 1)
      // An integer-like key starts with a digit, or with an escape that may stand for one.
      if ((isDigit(first) || first === backslash) && isKey(text, end)) isLossless = false
      at = end
    } else if (isDigit(code) || code === minus) {
      const end = numberEnd(text, at)
      isLossless &&= isPlainNumber(text, at, end)
      at = end
    } else {
      if (code === 0x5b || code === 0x7b) {
        depth += 1
        if (depth > depthMax) depthMax = depth
      } else if (code === 0x5d || code === 0x7d) depth -= 1
      at += 1
    }
  }
  return { isLossless, depth: depthMax }
}

/** Index behind the closing quote of the string that opens at `start`; the length of the text when nothing closes it. */
export function stringEnd(text: string, start: number): number {
  for (let at = start + 1; ; at += 1) {
    at = text.indexOf('"', at)
    if (at < 0) return text.length
    let slashes = at - 1
    while (text.charCodeAt(slashes) === backslash) slashes -= 1
    if ((at - slashes) % 2 === 1) return at + 1 // an even number of backslashes: the quote is none of theirs
  }
}

/** Index behind the number that starts at `start`, at least one further. */
export function numberEnd(text: string, start: number): number {
  let at = start + 1
  for (; ; at += 1) {
    const code = text.charCodeAt(at)
    if (isDigit(code) || code === minus || code === 0x2b || code === 0x2e || code === 0x65 || code === 0x45)
      continue
    return at
  }
}

function isKey(text: string, end: number): boolean {
  let at = end
  while (isBlank(text.charCodeAt(at))) at += 1
  return text.charCodeAt(at) === 0x3a
}

/** The four blanks of JSON. */
export function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09
}

/** Whether the JavaScript number tells the same as the text: a fraction for a float, no fraction for an int. */
function isPlainNumber(text: string, start: number, end: number): boolean {
  if (end - start < 16 && !hasFloatMark(text, start, end))
    return !(text.charCodeAt(start) === minus && text.charCodeAt(start + 1) === 0x30)
  const number = text.slice(start, end)
  const value = Number(number)
  return isFloatText(number) ? !Number.isInteger(value) : Number.isSafeInteger(value) && !Object.is(value, -0)
}

function hasFloatMark(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 0x2e || code === 0x65 || code === 0x45) return true
  }
  return false
}

/** Whether Python reads a JSON number as a float. */
export function isFloatText(number: string): boolean {
  return /[.eE]/.test(number)
}
