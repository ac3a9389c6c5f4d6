// How the tokenizer of Kimi models takes a text apart before any byte is merged.

/** As Rust's regular expressions read \s; JavaScript's own \s has U+FEFF and lacks U+0085. */
const space = '\\p{White_Space}'
const upper = '[[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]--[\\p{Script=Han}]]'
const lower = '[[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]--[\\p{Script=Han}]]'
/** Without regard to case, where the long s counts as an s. */
const contraction = "(?:'[sS\u017f]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?"
const before = '[^\\r\\n\\p{L}\\p{N}]?'

/** Routing specification 2.8; the first alternative that matches wins. */
const piecePattern = new RegExp(
  [
    '\\p{Script=Han}+',
    `${before}${upper}*${lower}+${contraction}`,
    `${before}${upper}+${lower}*${contraction}`,
    '\\p{N}{1,3}',
    ` ?[^${space}\\p{L}\\p{N}]+[\\r\\n]*`,
    `${space}*[\\r\\n]+`,
    `${space}+(?!\\P{White_Space})`,
    `${space}+`,
  ].join('|'),
  'gv',
)

/** The pieces of a text, in order; joined they are the text. */
export function textPieces(text: string): readonly string[] {
  return text.match(piecePattern) ?? []
}

/** The tokenizer of Kimi hands tiktoken no more than this many characters at once. */
const sliceCharsMax = 400_000
/** And cuts runs of spaces, and of anything else, that are longer than this. */
const runCharsMax = 25_000

/** As Python's str.isspace(), by UTF-16 code unit: no space is beyond the first plane. */
function isSpace(code: number): boolean {
  if (code > 0x20 && code < 0x80) return false // nearly always
  if (code <= 0x20) return code === 0x20 || (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f)
  return farSpaces.has(code)
}

const farSpaces = new Set(
  Array.from(
    '\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000',
    (char) => char.charCodeAt(0),
  ),
)

/**
 * The parts of a text that the tokenizer of Kimi encodes each on its own; characters are code points. Short texts are
 * one part. The cuts change tokens beside them, so they are part of what the tokenizer is.
 * @param text well-formed
 * @param limits of characters at once, and of characters in a run; only tests set them
 */
export function encodableParts(
  text: string,
  limits: { readonly sliceChars: number; readonly runChars: number } = {
    sliceChars: sliceCharsMax,
    runChars: runCharsMax,
  },
): readonly string[] {
  if (text.length <= Math.min(limits.runChars, limits.sliceChars)) return [text]
  const parts: string[] = []
  let start = 0
  let sliceLength = 0
  let runLength = 0
  let isSpaceRun = false
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code >= 0xdc00 && code <= 0xdfff) continue // the second half of a character
    const isSpaceNow = isSpace(code)
    const isSliceFull = sliceLength === limits.sliceChars
    const goesOn = isSpaceNow === isSpaceRun && !isSliceFull
    if (isSliceFull || (goesOn && runLength === limits.runChars)) {
      parts.push(text.slice(start, at))
      start = at
      runLength = 0
      if (isSliceFull) sliceLength = 0
    }
    runLength = goesOn ? runLength + 1 : 1
    isSpaceRun = isSpaceNow
    sliceLength += 1
  }
  parts.push(text.slice(start))
  return parts
}
